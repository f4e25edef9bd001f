"""Settings from files, environment and command line; which files are trusted; locations; models and prices."""
