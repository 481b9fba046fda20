"""Who may: the table of roles, the door where keys are known, the guard of every route, whose things are whose."""
