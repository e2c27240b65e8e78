"""Everything that is checked before the first step."""
