"""The files of a run: checked, placed, archived and kept."""
