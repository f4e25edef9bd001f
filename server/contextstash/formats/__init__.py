"""Provider formats: reading their messages, telling them apart, writing them back."""

from contextstash.formats.detection import FORMATS, detect_format, get_format

__all__ = ["FORMATS", "detect_format", "get_format"]
