cat > out/questions.json <<'END'
{"questions": [
  {"id": "Q1", "kind": "choice", "text": "What if no name is given?", "recommended": "An error: exit code 2.",
   "options": ["An error: exit code 2.", "It greets the world."]}
]}
END
