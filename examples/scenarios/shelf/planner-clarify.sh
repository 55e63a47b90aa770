cat "${ORCH_IN:-/in}/idea.txt"; ls tree
#---
cat > out/questions.json <<'END'
{"questions": [
  {"id": "Q1", "kind": "choice",
   "text": "Can a book be lent to two people at the same time?",
   "recommended": "No: a second loan is refused until the book is back.",
   "options": ["No: a second loan is refused until the book is back.", "Yes: loans are only counted."]},
  {"id": "Q2", "kind": "choice",
   "text": "Does the search care about upper and lower case?",
   "recommended": "No.",
   "options": ["No.", "Yes."]}
]}
END
