print("1..1\nok 1 # SKIP not today")
