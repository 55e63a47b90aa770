cat "${ORCH_IN:-/in}/answers.json"
#---
cat > out/spec.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<spec xmlns="urn:orch:spec:1" name="shelf" title="A book shelf">
  <summary>A web application for a shelf of books, with a JSON interface and a page for people. Python's standard
library only; storage in SQLite at $DATA/shelf.db; it listens on 127.0.0.1:$PORT. Bodies are JSON in UTF-8. An error is
answered with its status and {"error": TEXT}. A book is {"id": NUMBER, "title": TEXT, "author": TEXT}.</summary>
  <product kind="http"><start><arg>python3</arg><arg>-m</arg><arg>shelf</arg></start></product>
  <requirement id="R1" title="Health">GET /health answers 200 and {"status": "ok"}. An unknown path answers
404.</requirement>
  <requirement id="R2" title="Books">POST /books with {"title": TEXT, "author": TEXT} answers 201 and the book. A body that is
not such an object, or whose title is empty, answers 400 and changes nothing. GET /books answers 200 and {"books": [...]} in
the order in which they were added. GET /books/ID answers the book, or 404.</requirement>
  <requirement id="R3" title="Search">GET /search?q=TEXT answers 200 and {"books": [...]}: those with the text anywhere in title or
author, upper and lower case being the same, in the order in which they were added. The text is taken literally: no
character is a wildcard. Without q, or with an empty one, the answer is 400.</requirement>
  <requirement id="R4" title="Delete and lend">DELETE /books/ID answers 204; afterwards the book is gone, and the same request
answers 404. POST /books/ID/loan with {"to": NAME} answers 201; while the book is lent, a further loan answers 409. GET
/books/ID/loan answers {"to": NAME} or, when it is not lent, {"to": null}. DELETE /books/ID/loan takes it back and answers 204,
or 409 when it was not lent. For a book that does not exist each answers 404.</requirement>
  <requirement id="R5" title="Nothing is lost">After the process was killed and started again with the same data folder, all books
are there with the same ids, and a new book gets an id that was never used.</requirement>
  <requirement id="R6" title="Page and release note">GET / answers a page (text/html, UTF-8) that lists title and author of every
book as text: markup in them is shown, never interpreted. GET /release answers 200 and {"name": "shelf", "version":
"1.0.0", "features": [...]} with the names of the feature modules that are really loaded, sorted.</requirement>
</spec>
END
