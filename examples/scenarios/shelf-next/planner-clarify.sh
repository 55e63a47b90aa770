cat "${ORCH_IN:-/in}/idea.txt"; ls tree tree/shelf/features
#---
cat > out/questions.json <<'END'
{"questions": [
  {"id": "Q1", "kind": "choice",
   "text": "Are tags that differ only in upper and lower case the same tag?",
   "recommended": "Yes: they are kept in lower case.",
   "options": ["Yes: they are kept in lower case.", "No."]}
]}
END
