cat "${ORCH_IN:-/in}/answers.json" tree/README.md
#---
cat > out/spec.xml <<'END'
<?xml version="1.0" encoding="UTF-8"?>
<spec xmlns="urn:orch:spec:1" name="shelf" title="A book shelf with tags">
  <summary>Tags for the books of the shelf. Everything that it does today stays as it is.</summary>
  <product kind="http"><start><arg>python3</arg><arg>-m</arg><arg>shelf</arg></start></product>
  <requirement id="R7" title="Tags of a book">PUT /books/ID/tags with {"tags": [TEXT, ...]} replaces the tags of a book and
answers 200 and {"tags": [...]}: in lower case, without blanks around them, each once, sorted. GET /books/ID/tags answers the
same; a book without tags has []. A body that is not such an object, or an empty tag, answers 400 and changes nothing. A book that
does not exist: 404. Tags are there after a restart.</requirement>
  <requirement id="R8" title="Find by tag">GET /tags answers 200 and {"tags": {TAG: NUMBER OF BOOKS}}. GET /tags/TAG answers 200 and
{"books": [...]}, those that have the tag, in the order in which they were added; upper and lower case are the same. A tag
that no book has: 404.</requirement>
</spec>
END
