"""Tests of contextstash; the folders mirror the source tree."""
