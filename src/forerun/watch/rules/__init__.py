"""The rules, one family a file, one signature: `rule(case: Case) -> list[Finding]`. `course.RULES` lists them."""
