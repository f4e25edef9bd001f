"""The providers' message formats: detect, read and write messages."""

from contextstash.formats.detection import FORMATS, detect_format, get_format

__all__ = ["FORMATS", "detect_format", "get_format"]
