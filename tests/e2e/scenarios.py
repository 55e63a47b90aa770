# SPDX-License-Identifier: Apache-2.0
"""
The scenarios by themselves: their steps are run as plain shell in a temporary folder, then the product is started and every
check is run against it. Shows that the checks are worth something: each fails on nothing, on a stub, and on a product in
which its requirement was broken.
"""
import concurrent.futures
import ctypes
import glob
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree as xml

from provider import PROGRAM, SCENARIOS, SOURCE

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
NAMESPACES = {kind: "{urn:orch:%s:1}" % kind for kind in ("spec", "checks", "plan")}
LIARS = ("liar-exit", "liar-tests", "liar-runner", "liar-results")


# --- running steps ------------------------------------------------------------------------------------

def script_of(scenario, stem, attempt):
    """As synth-provider chooses: the most specific name, then the nearest folder."""
    folders, folder = [], os.path.join(SCENARIOS, scenario)
    while folder:
        folders.append(folder)
        with open(os.path.join(folder, "scenario.json"), encoding="utf-8") as file:
            base = json.load(file).get("extends")
        folder = base and os.path.join(folder, base)
    for name in ("%s.%d.sh" % (stem, attempt), stem + ".sh"):
        for folder in folders:
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    raise FileNotFoundError(stem)


class Workspace:
    """/in, tree/ and out/ of one attempt."""

    def __init__(self, root, name, tree, inputs=None):
        self.folder = os.path.join(root, name)
        self.inputs = os.path.join(self.folder, "in")
        self.tree = os.path.join(self.folder, "tree")
        self.out = os.path.join(self.folder, "out")
        os.makedirs(self.out)
        os.makedirs(os.path.join(self.inputs, "checks"))
        if tree:
            shutil.copytree(tree, self.tree)
        else:
            os.makedirs(self.tree)
        for path, text in (inputs or {}).items():
            with open(os.path.join(self.inputs, path), "w", encoding="utf-8") as file:
                file.write(text)

    def run(self, scenario, stem, attempt=1, broker="http://127.0.0.1:1"):
        with open(script_of(scenario, stem, attempt), encoding="utf-8") as file:
            steps = re.split(r"(?m)^#---[ \t]*\n", file.read())
        said = ""
        for step in steps:
            result = subprocess.run(["/bin/sh", "-c", step], cwd=self.folder, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                                    env={**ENVIRONMENT, "ORCH_IN": self.inputs, "ORCH_BROKER": broker})
            said += result.stdout.decode()
        self.status = result.returncode
        return said

    def text(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()


def files(tree):
    found = {}
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, tree)] = file.read()
    return found


def changed(before, after):
    return {path for path in {**before, **after} if before.get(path) != after.get(path)}


def covered(path, writes):
    return any(write == "." or path == write or (write.endswith("/") and path.startswith(write)) for write in writes)


def merge(target, base, theirs):
    old, new = files(base), files(theirs)
    for path in changed(old, new):
        full = os.path.join(target, path)
        if path in new:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(new[path])
        else:
            os.unlink(full)


# --- the product and its checks -------------------------------------------------------------------------

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)


class Product:
    """A tree that is started, with a data folder; can be killed and started again."""

    def __init__(self, tree):
        self.tree = tree
        self.data = tempfile.mkdtemp(prefix="orch-data-")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def start(self):
        self.port = free_port()
        self.process = subprocess.Popen(["/usr/bin/python3", "-m", "shelf"], cwd=self.tree, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                        env={**ENVIRONMENT, "DATA": self.data, "PORT": str(self.port)})
        wait_for(self.port, self.process)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def __exit__(self, *unused):
        self.kill()
        shutil.rmtree(self.data)


class StubHandler(http.server.BaseHTTPRequestHandler):
    def respond(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_GET = do_POST = do_PUT = do_DELETE = respond

    def log_message(self, *unused):
        pass


class Stub:
    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StubHandler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        return self

    def start(self):
        pass

    kill = start

    def __exit__(self, *unused):
        self.server.shutdown()
        self.server.server_close()


class Nothing(Stub):
    def __enter__(self):
        self.port = free_port()
        return self

    def __exit__(self, *unused):
        pass


def run_check(path, port, *arguments):
    """(True if passed, what it printed). Counted as the pipeline does."""
    started = time.monotonic()
    result = subprocess.run(["/usr/bin/python3", "-I", path, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=30, cwd="/",
                            env={"PATH": "/usr/bin:/bin", "PRODUCT_URL": "http://127.0.0.1:%d" % port})
    lines = result.stdout.splitlines()
    plan = re.fullmatch(r"1\.\.([1-9][0-9]*)", lines[0]) if lines else None
    points = [line for line in lines[1:] if re.match(r"(not )?ok [0-9]+\b", line)]
    well_formed = bool(plan) and len(points) == int(plan.group(1)) == len(lines) - 1 and not result.stderr
    passed = well_formed and result.returncode == 0 and all(line.startswith("ok ") for line in points)
    return passed, well_formed, time.monotonic() - started, result.stdout + result.stderr


class Check:
    def __init__(self, element, folder):
        self.id = element.get("id")
        self.requirement = element.get("requirement")
        self.hidden = element.get("visibility") == "hidden"
        self.restart = element.get("restart") == "yes"
        self.path = os.path.join(folder, element.get("file"))

    def run(self, target):
        """`target`: something with start() and kill(), not entered yet."""
        with target:
            if not self.restart:
                return run_check(self.path, target.port)
            first = run_check(self.path, target.port, "before")
            target.kill()
            target.start()
            second = run_check(self.path, target.port, "after")
            return (first[0] and second[0], first[1] and second[1], max(first[2], second[2]), first[3] + second[3])


def run_all(checks, make_target):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda check: check.run(make_target()), checks)
        return dict(zip([check.id for check in checks], results))


def failing(results):
    return {name for name, result in results.items() if not result[0]}


# --- a scenario from the idea to a tree -------------------------------------------------------------------

class Played:
    """The documents of a scenario, and the trees after each of its tasks."""

    def __init__(self, root, scenario, base=None):
        self.root, self.scenario, self.base = root, scenario, base
        idea = subprocess.run([PROGRAM, "--scenario", os.path.join(SCENARIOS, scenario), "--check"], timeout=20,
                              capture_output=True, text=True, check=True).stdout.splitlines()[0]
        self.inputs = {"idea.txt": idea}
        for role, stage in (("planner", "clarify"), ("planner", "specify"), ("checker", "check"), ("planner", "plan")):
            work = Workspace(root, stage, base, self.inputs)
            before = files(work.tree)
            work.run(scenario, "%s-%s" % (role, stage))
            assert files(work.tree) == before, "%s changes the tree" % stage
            if stage == "clarify":
                self.questions = json.loads(work.text("questions.json"))["questions"]
                self.inputs["answers.json"] = json.dumps({"answers": {
                    question["id"]: question["recommended"] for question in self.questions}})
            elif stage == "check":
                self.inputs["checks.xml"] = work.text("checks.xml")
                self.checks = [Check(element, work.out) for element in xml.fromstring(self.inputs["checks.xml"])]
                self.leftovers = set(os.listdir(work.out)) - {"checks.xml", "checks"}
                self.out = work.out
            else:
                name = {"specify": "spec.xml", "plan": "plan.xml"}[stage]
                self.inputs[name] = work.text(name)
        self.spec = xml.fromstring(self.inputs["spec.xml"])
        self.plan = xml.fromstring(self.inputs["plan.xml"])
        self.tasks = {task.get("id"): task for task in self.plan}

    def after(self, task):
        return [element.get("ref") for element in self.tasks[task].findall(NAMESPACES["plan"] + "after")]

    def writes(self, task):
        return [element.get("path") for element in self.tasks[task].findall(NAMESPACES["plan"] + "write")]

    def requirements(self, task):
        return [element.get("ref") for element in self.tasks[task].findall(NAMESPACES["plan"] + "requirement")]

    def attempt(self, name, task, base, scenario, number, broker="http://127.0.0.1:1"):
        """The tree that one attempt at a task leaves, and what it changed outside of its write set."""
        work = Workspace(self.root, name, base, {**self.inputs, "task.json": json.dumps({"id": task})})
        for check in self.checks:
            if not check.hidden:
                shutil.copy(check.path, os.path.join(work.inputs, "checks"))
        work.run(scenario, "executor-execute-" + task, number, broker)
        return work.tree, {path for path in changed(files(base), files(work.tree))
                           if not covered(path, self.writes(task))}

    def replay(self, name, task, scenario, number):
        """The honest product, but with another scenario's attempt at one task. Also (tree, outside writes)."""
        honest = os.path.join(self.root, "honest")
        base = os.path.join(honest, "base-" + task)
        tree, outside = self.attempt(name, task, base, scenario, number)
        merged = os.path.join(self.root, name, "merged")
        shutil.copytree(os.path.join(honest, "merged"), merged)
        merge(merged, os.path.join(honest, task, "tree"), base)
        merge(merged, base, tree)
        return merged, outside

    def execute(self, name, broker="http://127.0.0.1:1"):
        """Each task on the merged trees of those before it, then merged. The path of the last tree."""
        merged = os.path.join(self.root, name, "merged")
        if self.base:
            shutil.copytree(self.base, merged)
        else:
            os.makedirs(merged)
        self.outside_writes = {}
        waves = []
        for task in self.tasks:
            if waves and not set(self.after(task)) & set(waves[-1]):
                waves[-1].append(task)
            else:
                waves.append([task])
        for wave in waves:
            base = os.path.join(self.root, name, "base-" + wave[0])
            shutil.copytree(merged, base)

            with concurrent.futures.ThreadPoolExecutor(len(wave)) as pool:
                results = list(pool.map(lambda task: self.attempt(os.path.join(name, task), task, base, self.scenario, 2,
                                                                  broker), wave))
            for task, (tree, outside) in zip(wave, results):
                self.outside_writes[task] = outside
                merge(merged, base, tree)
        return merged


def valid(schema, text):
    """RELAX NG, by the library that the pipeline uses."""
    library = ctypes.CDLL("libxml2.so.2")
    for name in ("xmlReadMemory", "xmlRelaxNGNewParserCtxt", "xmlRelaxNGParse", "xmlRelaxNGNewValidCtxt"):
        getattr(library, name).restype = ctypes.c_void_p
    parser = ctypes.c_void_p(library.xmlRelaxNGNewParserCtxt(schema.encode()))
    grammar = ctypes.c_void_p(library.xmlRelaxNGParse(parser))
    data = text.encode()
    document = ctypes.c_void_p(library.xmlReadMemory(data, len(data), b"document", None, 2048 | 64))
    assert grammar and document
    validator = ctypes.c_void_p(library.xmlRelaxNGNewValidCtxt(grammar))
    silent = ctypes.CFUNCTYPE(None)(lambda: None)
    library.xmlRelaxNGSetValidErrors(validator, silent, silent, None)
    return library.xmlRelaxNGValidateDoc(validator, document) == 0


class Notified:
    """A broker that counts notify.send."""

    def __enter__(self):
        keys = self.keys = []

        class Handler(StubHandler):
            def do_POST(self):
                keys.append((self.path, self.headers.get("Idempotency-Key")))
                self.respond()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        return self

    def __exit__(self, *unused):
        self.server.shutdown()
        self.server.server_close()


class Scenarios(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="orch-scenarios-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.root = cls.temporary.name
        cls.shelf = Played(os.path.join(cls.root, "shelf"), "shelf")
        with Notified() as broker:
            cls.tree = cls.shelf.execute("honest", broker=broker.url)
            cls.notified = broker.keys
        cls.outside_writes = cls.shelf.outside_writes
        cls.next = Played(os.path.join(cls.root, "next"), "shelf-next", cls.tree)
        cls.next_tree = cls.next.execute("honest")

    def all_pass(self, checks, tree):
        results = run_all(checks, lambda: Product(tree))
        for name, result in results.items():
            self.assertTrue(result[0], "%s: %s" % (name, result[3]))
        return results

    def variant(self, name, change):
        """The delivered tree with something broken."""
        tree = os.path.join(self.root, "mutant-" + name)
        shutil.copytree(self.tree, tree)
        change(tree)
        return tree

    def test_documents(self):
        for played in (self.shelf, self.next):
            ids = [element.get("id") for element in played.spec.findall(NAMESPACES["spec"] + "requirement")]
            self.assertEqual(len(ids), len(set(ids)))
            for hidden in (False, True):
                self.assertEqual({check.requirement for check in played.checks if check.hidden == hidden}, set(ids))
            self.assertEqual({ref for task in played.tasks for ref in played.requirements(task)}, set(ids))
            self.assertTrue(set(sum(map(played.after, played.tasks), [])) <= set(played.tasks))
            self.assertTrue(1 <= len(played.questions) <= 7 and all(q["recommended"] in q["options"]
                                                                    for q in played.questions))
            self.assertEqual(played.leftovers, set())
            named = {os.path.relpath(check.path, played.out) for check in played.checks}
            self.assertEqual(named, {"checks/" + name for name in os.listdir(os.path.join(played.out, "checks"))})
        self.assertEqual([len(self.shelf.tasks), self.shelf.after("T2"), self.shelf.after("T3")], [4, ["T1"], ["T1"]])
        self.assertFalse(set(self.shelf.writes("T2")) & set(self.shelf.writes("T3")))
        self.assertFalse({element.get("id") for element in self.next.spec} &
                         {element.get("id") for element in self.shelf.spec} - {None})

    def test_schemas(self):
        for kind in ("spec", "checks", "plan"):
            schema = os.path.join(SOURCE, "schemas", kind + ".rng")
            for played in (self.shelf, self.next):
                text = played.inputs[kind + ".xml"]
                self.assertTrue(valid(schema, text), "%s of %s" % (kind, played.scenario))
                self.assertFalse(valid(schema, text.replace("</%s>" % kind, "<other/></%s>" % kind)))

    def test_shelf_passes(self):
        self.assertEqual(self.outside_writes, {"T1": set(), "T2": set(), "T3": set(), "T4": set()})
        self.assertEqual(self.notified, [("/notify.send", "announce")])
        self.assertEqual([path for path in files(self.tree) if "__pycache__" in path], [])
        results = self.all_pass(self.shelf.checks, self.tree)
        slow = {name: result[2] for name, result in results.items() if result[2] > 2}
        self.assertEqual(slow, {})

    def test_own_tests_pass(self):
        for tree in (self.tree, self.next_tree):
            result = subprocess.run(["/usr/bin/python3", "-m", "unittest", "discover", "-s", "tests", "-t", "."], cwd=tree,
                                    env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stderr, r"Ran [4-9] tests")

    def test_every_task_passes_when_it_is_done(self):
        """The checks of a task's requirements need nothing of later tasks."""
        done = os.path.join(self.root, "shelf/honest")
        for task in self.shelf.tasks:
            mine = [check for check in self.shelf.checks if check.requirement in self.shelf.requirements(task)]
            self.all_pass(mine, os.path.join(done, task, "tree"))
            base = os.path.join(done, "base-" + {"T3": "T2"}.get(task, task))
            self.assertEqual(failing(run_all(mine, lambda: Product(base))), {check.id for check in mine}, task)

    def test_every_check_fails_without_a_product(self):
        for target in (Stub, Nothing):
            for played in (self.shelf, self.next):
                results = run_all(played.checks, target)
                self.assertEqual(failing(results), {check.id for check in played.checks}, target)
                for name, result in results.items():
                    self.assertTrue(result[1], "%s is no TAP: %s" % (name, result[3]))

    def test_broken_requirements_are_noticed(self):
        def remove(*names):
            return lambda tree: [os.unlink(os.path.join(tree, "shelf", name)) for name in names]

        def replace(name, old, new):
            def change(tree):
                path = os.path.join(tree, "shelf", name)
                with open(path, encoding="utf-8") as file:
                    text = file.read()
                self.assertIn(old, text)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text.replace(old, new))
            return change
        mutants = {
            "health-gone": ("R1", remove("features/health.py")),
            "health-text": ("R1", replace("features/health.py", '"ok"', '"fine"')),
            "every-path-answers": ("R1", replace("web.py", 'raise Refused(404, "no such path")', "return 200, {}")),
            "books-gone": ("R2", remove("features/books.py")),
            "empty-titles": ("R2", replace("web.py", "not isinstance(value, str) or not value.strip()", "False")),
            "order": ("R2", replace("storage.py", "ORDER BY id", "ORDER BY title")),
            "search-gone": ("R3", remove("features/search.py")),
            "search-case": ("R3", replace("features/search.py", ".casefold()", "")),
            "search-title-only": ("R3", replace("features/search.py", 'or wanted in book["author"].casefold()', "")),
            "loans-gone": ("R4", remove("features/loans.py")),
            "lent-twice": ("R4", replace("features/loans.py", "INSERT OR IGNORE", "INSERT OR REPLACE")),
            "deletes-all": ("R4", replace("features/loans.py", "FROM books WHERE id = ?", "FROM books WHERE id >= ?")),
            "memory": ("R5", replace("storage.py", "sqlite3.connect(self.path, timeout=10)",
                                     "sqlite3.connect('file:shelf-%d?mode=memory&cache=shared' % os.getpid(), uri=True)")),
            "not-committed": ("R5", replace("storage.py", "            with db:\n                yield db", "            yield db")),
            "page-gone": ("R6", remove("features/page.py")),
            "no-escape": ("R6", replace("features/page.py", "html.escape(book[\"title\"])", "book[\"title\"]")),
            "no-author-escape": ("R6", replace("features/page.py", "html.escape(book[\"author\"])", "book[\"author\"]")),
            "release-gone": ("R6", remove("features/release.py")),
        }
        keep = ("import sqlite3\n", "import os\nimport sqlite3\n\nKEEP = sqlite3.connect("
                "'file:shelf-%d?mode=memory&cache=shared' % os.getpid(), uri=True, check_same_thread=False)\n")
        for name, (requirement, change) in mutants.items():
            with self.subTest(mutant=name):
                tree = self.variant(name, change)
                if name == "memory":
                    replace("storage.py", *keep)(tree)
                mine = [check for check in self.shelf.checks if check.requirement == requirement]
                self.assertNotEqual(failing(run_all(mine, lambda: Product(tree))), set())
                if name == "memory":
                    others = [check for check in self.shelf.checks if check.requirement == "R2"]
                    self.assertEqual(failing(run_all(others, lambda: Product(tree))), set())

    def test_second_try(self):
        mine = [check for check in self.shelf.checks if check.requirement == "R3"]
        wrong, outside = self.shelf.replay("second-1", "T2", "second-try", 1)
        self.assertEqual(failing(run_all(mine, lambda: Product(wrong))), {"H3"})
        self.assertEqual(outside, set())
        right, _ = self.shelf.replay("second-2", "T2", "second-try", 2)
        self.assertEqual(files(right), files(self.tree))

    def test_liars_gain_nothing(self):
        mine = [check for check in self.shelf.checks if check.requirement == "R3"]
        cases = [(liar, attempt) for liar in LIARS for attempt in (1, 2, 3)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            trees = pool.map(lambda case: self.shelf.replay("%s-%d" % case, "T2", *case), cases)
        for (liar, attempt), (tree, outside) in zip(cases, trees):
            with self.subTest(liar=liar, attempt=attempt):
                self.assertIn("H3", failing(run_all(mine, lambda: Product(tree))))
                self.assertEqual(bool(outside), attempt == 1 and liar != "liar-exit")

    def test_what_liars_claim(self):
        """They do lie: a judge who believed them would be taken in."""
        base = os.path.join(self.root, "shelf/honest/base-T2")
        for liar, attempt, claim in (("liar-exit", 1, "All 12 checks pass"), ("liar-tests", 1, "OK"),
                                     ("liar-tests", 2, "OK"), ("liar-runner", 1, "ok 1"),
                                     ("liar-results", 1, "ok 2 - H3"), ("liar-results", 2, "ok 2 - H3")):
            work = Workspace(self.root, "claims-%s-%d" % (liar, attempt), base)
            self.assertIn(claim, work.run(liar, "executor-execute-T2", attempt))
            self.assertEqual(work.status, 0)

    def test_review(self):
        work = Workspace(self.root, "review", self.tree)
        work.run("shelf", "reviewer-review")
        review = json.loads(work.text("review.json"))
        self.assertEqual((review["veto"], len(review["reasons"])), (False, 1))
        self.assertIn("read %d files" % len(files(self.tree)), review["reasons"][0])
        work = Workspace(self.root, "review-broken", self.tree)
        with open(os.path.join(work.tree, "shelf/web.py"), "a", encoding="utf-8") as file:
            file.write("def broken(:\n")
        work.run("shelf", "reviewer-review")
        self.assertTrue(json.loads(work.text("review.json"))["veto"])

    def test_shelf_next(self):
        self.assertEqual(self.next.outside_writes, {"T1": set(), "T2": set()})
        self.assertEqual(failing(run_all(self.next.checks, lambda: Product(self.tree))), {"C7", "H7", "C8", "H8"})
        self.all_pass(self.next.checks + self.shelf.checks, self.next_tree)

    def test_all_scenarios_are_well_formed(self):
        names = sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(SCENARIOS + "/*/scenario.json"))
        self.assertEqual(names, sorted(("greet", "shelf", "second-try", "shelf-next") + LIARS))
        for name in names:
            result = subprocess.run([PROGRAM, "--scenario", os.path.join(SCENARIOS, name), "--check"], timeout=20,
                                    capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stdout.split(":")[0]), (0, name), result.stderr)


if __name__ == "__main__":
    unittest.main()
