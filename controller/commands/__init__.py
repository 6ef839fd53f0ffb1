"""What each subcommand does, apart from how the command line spells it."""
