print("1..3\nok 1\nok 2")
