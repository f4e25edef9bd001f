"""The providers' message formats: detect, read and write messages.

    fmt = get_format(detect_format(messages))
    reading = fmt.read(messages[-1])  # its role, its blocks, and a text for each block
    shorter = fmt.replace(messages[-1], {0: "[left out]"})  # the same message with another tool result

Messages are never changed: each method returns a new one.
"""

from contextstash.formats.detection import FORMATS, UNDECIDED, detect_format, get_format

__all__ = ["FORMATS", "UNDECIDED", "detect_format", "get_format"]
