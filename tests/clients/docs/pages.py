"""Runs the programs of the documentation, and follows its links.

    pages.py links REPO                      every relative link and anchor of every page leads somewhere
    pages.py run REPO CACHE URL PAGE         the programs of a page, in order, against the server at URL

The rules for writers. A block of one of the languages below is a whole program; they run in the order of the
page. `nats://127.0.0.1:4222` in one stands for the test's server. A block `text` right behind the line
"It prints:" is compared with what the program before it wrote, where `…` stands for anything in a line. Any other block
has `<!-- pinned in FILE -->` before it (each version in the block must stand in that file of the repository, which says
what the tests install), `<!-- not run: REASON -->`, or the language `text`.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

SERVER = "nats://127.0.0.1:4222"
PROGRAM_LIMIT_S = 300
VERSION = re.compile(r"\d+\.\d+\.\d+")
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def python(cache, program, place):
    file = place / "program.py"
    file.write_text(program)
    return [cache / "nats-py/bin/python", "-B", "-u", file], place


def go(cache, program, place):
    module = here() / "nats-go"
    for name in ("go.mod", "go.sum"):
        shutil.copy(module / name, place)
    (place / "main.go").write_text(program)
    return ["go", "run", "-mod=readonly", "main.go"], place


def java(cache, program, place):
    name = re.search(r"^(?:public )?(?:final )?class (\w+)", program, re.M).group(1)
    file = place / f"{name}.java"
    file.write_text(program)
    return ["java", "-cp", f"{cache}/jnats/jars/*", file], place


def javascript(cache, program, place):
    (place / "node_modules").symlink_to(cache / "nats-js/node_modules")
    file = place / "program.mjs"
    file.write_text(program)
    return ["node", file], place


def rust(cache, program, place):
    package = here() / "async-nats"
    for name in ("Cargo.toml", "Cargo.lock"):
        # Another name than that of the scenarios' program, whose dependencies it shares.
        (place / name).write_text((package / name).read_text().replace("clients-async-nats", "page"))
    (place / "src").mkdir()
    (place / "src/main.rs").write_text(program)
    os.environ["CARGO_TARGET_DIR"] = str(cache / "async-nats")
    return ["cargo", "run", "--quiet", "--locked"], place


LANGUAGES = {"python": python, "go": go, "java": java, "js": javascript, "rust": rust}


def here():
    return Path(__file__).resolve().parent.parent


def blocks(text):
    """(line, language, body, the last line of text before the block)."""
    end = 0
    for match in FENCE.finditer(text):
        before = [line.strip() for line in text[end:match.start()].splitlines() if line.strip()]
        yield text.count("\n", 0, match.start()) + 1, match[1], match[2], before[-1] if before else ""
        end = match.end()


def printed_as(shown, found):
    pattern = "[^\n]*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, found.strip()) is not None


def run_program(cache, url, language, program):
    # Always the same place: compilers remember what they made there.
    place = cache / "pages" / language
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    command, place = LANGUAGES[language](cache, program.replace(SERVER, url), place)
    done = subprocess.run(
        [str(part) for part in command], cwd=place, timeout=PROGRAM_LIMIT_S, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    if done.returncode != 0:
        raise SystemExit(f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def check_pins(repo, file, body):
    versions = VERSION.findall(body)
    pinned = (repo / file).read_text()
    if not versions:
        raise SystemExit("names no version")
    for version in versions:
        if version not in pinned:
            raise SystemExit(f"{version} is not what {file} pins")


def run_block(repo, cache, url, block, output):
    """Returns what the last program printed and has not been compared yet, or None."""
    _, language, body, before = block
    if before.startswith("<!-- not run: "):
        return output
    if before.startswith("<!-- pinned in "):
        check_pins(repo, before.removeprefix("<!-- pinned in ").removesuffix("-->").strip(), body)
        return output
    if language in LANGUAGES:
        return run_program(cache, url, language, body)
    if language != "text":
        raise SystemExit(f"a block of language '{language}' is neither run nor marked")
    if before.endswith("It prints:"):
        if output is None:
            raise SystemExit("no program stands before this")
        if not printed_as(body, output):
            raise SystemExit(f"the program printed:\n{output}")
        return None
    return output


def run(repo, cache, url, page):
    output, ran = None, 0
    for block in blocks(page.read_text()):
        try:
            output = run_block(repo, cache, url, block, output)
        except (SystemExit, subprocess.TimeoutExpired) as fault:
            raise SystemExit(f"{page.relative_to(repo)}, line {block[0]}: {fault}") from None
        ran += block[1] in LANGUAGES and not block[3].startswith("<!-- not run: ")
    print(f"{page.relative_to(repo)}: {ran} programs ran")


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found, seen = set(), {}
    for heading in re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def links(repo):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=repo, text=True, check=True,
                            stdout=subprocess.PIPE)
    faults, seen = [], 0
    for name in listed.stdout.split("\n"):
        page = repo / name
        if not name or not page.exists():
            continue
        text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
        for link in LINK.findall(text):
            if re.match(r"[a-z]+:", link):
                continue
            seen += 1
            path, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                faults.append(f"{name}: {link}: no such file")
            elif anchor and anchor not in anchors(target.read_text()):
                faults.append(f"{name}: {link}: no such heading")
    if faults or not seen:
        raise SystemExit("\n".join(faults) or "no links were found")
    print(f"{seen} links lead somewhere")


def main(what, repo, *more):
    repo = Path(repo).resolve()
    if what == "links":
        links(repo)
    else:
        cache, url, page = more
        run(repo, Path(cache).resolve(), url, (repo / page).resolve())


main(*sys.argv[1:])
