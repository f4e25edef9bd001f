"""The providers' message formats: detect, read and write messages."""

from contextstash.formats.detection import FORMATS, UNDECIDED, detect_format, get_format

__all__ = ["FORMATS", "UNDECIDED", "detect_format", "get_format"]
