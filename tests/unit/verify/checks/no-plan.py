print("ok 1\nok 2")
