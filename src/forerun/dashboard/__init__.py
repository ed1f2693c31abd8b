"""The public pages, from files only: server and static site."""
