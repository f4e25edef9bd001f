"""Providers' JSON: messages detected, read and written, lists repaired, and where they may be cut.

    fmt = get_format(detect_format(messages))  # of messages.detection
    reading = fmt.read(messages[-1])  # its role, its blocks, and a text for each block
    shorter = fmt.replace(messages[-1], {0: "[left out]"})  # the same message with another tool result

Messages are never changed: each method returns a new one.
"""
