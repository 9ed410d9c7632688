#!/usr/bin/env python3
"""Renames words, types, modules and files of the whole tree, from data. Run in the tree's root.

table.tsv: old, new, kind, scope (tab separated; # starts a comment line).
  ident  an identifier in code, exact; also between back-ticks of comments and in {captures} of strings
  code   a regular expression over code text without comments and strings (new may use \\1)
  raw    a regular expression over whole .rs files (comments and strings as well)
  prose  a regular expression over comments of .rs files
  doc    a regular expression over the files named in the scope (Markdown and others)
  str    a regular expression over string literals
  file   a path that moves (git mv); scope empty. Runs last; all scopes use old paths.
Scope: globs separated by blanks; a leading ! takes away; "all" is every .rs file.
comments/*.txt: comments that are said anew, see `rewrites`.
Counts go to counts.tsv, what did not apply to misses.txt.
"""
import fnmatch, os, re, subprocess, sys, glob, collections
HERE = os.path.dirname(os.path.abspath(__file__))
TOK = re.compile(r'''
  (?P<line>//[^\n]*)
 |(?P<block>/\*(?:[^*]|\*(?!/))*\*/)
 |(?P<raw>\b[bc]?r(?P<h>\#+)"(?:.|\n)*?"(?P=h)|\b[bc]?r"[^"]*")
 |(?P<str>\b[bc]?"(?:[^"\\]|\\(?:.|\n))*"|"(?:[^"\\]|\\(?:.|\n))*")
 |(?P<char>\bb?'(?:[^'\\\n]|\\[^\n][^'\n]{0,8})'|'(?:[^'\\\n]|\\[^\n][^'\n]{0,8})')
 |(?P<life>'\w+)
 |(?P<rid>\br\#\w+)
 |(?P<id>[A-Za-z_]\w*)
 |(?P<other>\s+|\d\w*(?:\.\d\w*)?|.)
''', re.X | re.S)
def tokens(t):
    for m in TOK.finditer(t):
        yield m.lastgroup if m.lastgroup != 'h' else 'raw', m.group(0)
def in_scope(path, scope):
    if scope in ('', 'all'): return True
    pos = [s for s in scope.split() if s[0] != '!']
    neg = [s[1:] for s in scope.split() if s[0] == '!']
    return (not pos or any(fnmatch.fnmatch(path, s) for s in pos)) and not any(fnmatch.fnmatch(path, s) for s in neg)
ALIAS = {'@log': 'crates/nuthatch-log/*', '@object': 'crates/nuthatch-object/*', '@streams': 'crates/nuthatch-streams/*',
 '@server': 'crates/nuthatch-server/*', '@archive': 'crates/nuthatch-archive/*', '@bench': 'crates/nuthatch-bench/*',
 '@protocol': 'crates/nuthatch-protocol/*', '@cli': 'crates/nuthatch/*'}
def expand(scope):
    out = []
    for s in scope.split():
        neg = s.startswith('!'); b = s.lstrip('!')
        for a, g in ALIAS.items():
            if b == a: b = g
            elif b.startswith(a + '/'): b = g[:-1] + b[len(a) + 1:]
        out.append(('!' if neg else '') + b)
    return ' '.join(out)
rules = []
for n, l in enumerate(open(HERE + '/table.tsv').read().split('\n'), 1):
    if not l.strip() or l.startswith('#'): continue
    p = re.split(r'\t+', l.rstrip('\t'))
    assert len(p) in (3, 4), (n, l)
    old, new, kind, scope = (p + ['all'])[:4]
    rules.append(dict(old=old, new=new, kind=kind, scope=expand(scope), n=n, hits=0, files=set()))
for r in rules:
    if r['kind'] == 'mod':
        x = r['old']
        r['code'] = re.compile(r'\bmod\s+%s\b|(?<![\w.])%s(?=::)|(?<=::)%s(?=;| as )|(?<=[{,] )%s(?=::| as )' % (x, x, x, x))
        r['com'] = re.compile(r'(?<=\[`)%s(?=`\])|(?<=::)%s(?=`|::)|(?<![\w.])%s(?=::)' % (x, x, x))
    elif r['kind'] not in ('ident', 'file'): r['re'] = re.compile(r['old'])
tracked = subprocess.run(['git', 'ls-files'], capture_output=True, text=True, check=True).stdout.split('\n')
RS = [f for f in tracked if f.endswith('.rs')]
misses = []
# --- comments said anew
# Format: "@ path-glob", then "- old comment line" (one or more), then "+ new" (any number). A line is
# compared without indentation. "~" as the new text keeps the marker (///, //!, //) of the first old line.
def rewrites():
    out = []
    for f in sorted(glob.glob(HERE + '/comments/*.txt')):
        path, old, new = '', [], []
        def flush():
            if old: out.append((path, tuple(old), tuple(new)))
        for l in open(f).read().split('\n'):
            if l.startswith('@ '): flush(); old, new = [], []; path = expand(l[2:].strip())
            elif l.startswith('- '):
                if new: flush(); old, new = [], []
                old.append(l[2:])
            elif l.startswith('+'): new.append(l[2:])
            elif not l.strip(): flush(); old, new = [], []
        flush()
    return out
RW = collections.defaultdict(list)
for i, (p, o, n) in enumerate(rewrites()): RW[o[0].strip()].append((i, p, o, n))
rw_hits = collections.Counter()
WIDTH = 100
def wrap(marker, indent, text):
    words, lines, cur = text.split(' '), [], ''
    for w in words:
        if cur and len(indent) + len(marker) + 1 + len(cur) + 1 + len(w) > WIDTH: lines.append(cur); cur = w
        else: cur = (cur + ' ' + w) if cur else w
    lines.append(cur)
    return [indent + marker + ' ' + x for x in lines]
def say_anew(path, text):
    L, out, i = text.split('\n'), [], 0
    while i < len(L):
        hit = None
        for k, p, o, n in RW.get(L[i].strip(), ()):
            if in_scope(path, p) and len(L) - i >= len(o) and all(L[i + j].strip() == o[j].strip() for j in range(len(o))):
                if hit is None or len(o) > len(hit[1]): hit = (k, o, n)
        if hit:
            k, o, n = hit; rw_hits[k] += 1
            ind = L[i][:len(L[i]) - len(L[i].lstrip())]
            marker = re.match(r'//[/!]?', L[i].strip()).group(0)
            for x in n:
                if x.startswith('//'): out.append(ind + x)
                elif x == '': out.append(ind + marker)
                else: out.extend(wrap(marker, ind, x))
            i += len(o)
        else: out.append(L[i]); i += 1
    return '\n'.join(out)
auto = collections.Counter()
def bools(text, cli=False):
    """`Whether …` on a function or field of type bool becomes `True if …` (same length)."""
    L = text.split('\n')
    for i, l in enumerate(L):
        m = re.match(r'(\s*/// )Whether (?!to\b|it should\b)(.*)', l)
        if not m or (i and L[i - 1].strip().startswith('///')): continue
        j = i
        while j < len(L) and re.match(r'\s*(///|#\[|//)', L[j]): j += 1
        item = ''
        for k in range(j, min(j + 8, len(L))):
            item += ' ' + L[k].strip()
            if re.search(r'[{;]\s*$', L[k]) or (re.match(r'\s*(pub(\([\w: ]+\))? )?\w+: .*,$', L[k]) and k == j): break
        f = re.search(r'\bfn \w+', item)
        if not f and cli: continue
        if f: ok = re.search(r'-> (?:[\w:]*Result<bool\b|Option<bool>|bool\b)', item)
        else: ok = re.match(r' (pub(\([\w: ]+\))? )?\w+: ((\w+::)*AtomicBool|bool|Cell<bool>),', item)
        if ok and not re.search(r'-> .*Option<bool>', item):
            L[i] = m.group(1) + 'True if ' + m.group(2); auto['bool'] += 1
    return '\n'.join(L)
def offsets(text):
    """`Where …` on an integer field becomes `Offset where …`."""
    L = text.split('\n')
    for i, l in enumerate(L[:-1]):
        m = re.match(r'(\s*/// )Where (?!to\b|in\b)(.* (?:starts?|begins?|ends?)\b.*)', l)
        if m and not L[i - 1].strip().startswith('///') and re.match(r'\s*(pub(\([\w: ]+\))? )?\w+: (Option<)?(u32|u64|usize)>?,', L[i + 1]):
            L[i] = m.group(1) + 'Offset where ' + m.group(2); auto['offset'] += 1
    return '\n'.join(L)
def sub(r, t, path):
    t, c = r['re'].subn(r['new'], t)
    if c: r['hits'] += c; r['files'].add(path)
    return t
def ticks(com, idm, path):
    def one(m):
        def w(x):
            r = idm.get(x.group(0))
            if not r: return x.group(0)
            r['hits'] += 1; return r['new']
        return re.sub(r'[A-Za-z_]\w*', w, m.group(0))
    return re.sub(r'`[^`\n]+`', one, com)
def captures(s, idm):
    def one(m):
        r = idm.get(m.group(2))
        if not r: return m.group(0)
        r['hits'] += 1; return m.group(1) + r['new'] + m.group(3)
    return re.sub(r'((?:^|[^{])(?:\{\{)*\{)([A-Za-z_]\w*)([:}])', one, s)
def rust(path, text):
    text = bools(say_anew(path, text), path.startswith(('crates/nuthatch/', 'crates/nuthatch-bench/')))
    text = offsets(text)
    mine = [r for r in rules if in_scope(path, r['scope'])]
    for r in mine:
        if r['kind'] == 'raw': text = sub(r, text, path)
    idm = {}
    for r in mine:
        if r['kind'] == 'ident': idm.setdefault(r['old'], r)
    code = [r for r in mine if r['kind'] in ('code', 'mod')]
    mods = [r for r in mine if r['kind'] == 'mod']
    prose = [r for r in mine if r['kind'] == 'prose']
    strs = [r for r in mine if r['kind'] == 'str']
    if code:
        # comments and strings are hidden from these
        hid, buf = [], []
        for k, s in tokens(text):
            if k in ('line', 'block', 'str', 'raw', 'char'): hid.append(s); buf.append('\x01%d\x02' % (len(hid) - 1))
            else: buf.append(s)
        t = ''.join(buf)
        for r in code:
            if r['kind'] == 'mod':
                t, c = r['code'].subn(lambda m: m.group(0).replace(r['old'], r['new']), t)
                if c: r['hits'] += c; r['files'].add(path)
            else: t = sub(r, t, path)
        text = re.sub('\x01(\\d+)\x02', lambda m: hid[int(m.group(1))], t)
    out = []
    for k, s in tokens(text):
        if k == 'id' and s in idm:
            r = idm[s]; r['hits'] += 1; r['files'].add(path); s = r['new']
        elif k in ('line', 'block'):
            o = s
            s = ticks(s, idm, path)
            for r in mods:
                s, c = r['com'].subn(r['new'], s)
                r['hits'] += c
            for r in prose: s = sub(r, s, path)
        elif k in ('str', 'raw'):
            s = captures(s, idm)
            for r in strs: s = sub(r, s, path)
        out.append(s)
    return reflow(text, ''.join(out))
def reflow(before, after):
    """Wraps paragraphs of comments of which a changed line has become too long."""
    old = set(before.split('\n'))
    L, out, i = after.split('\n'), [], 0
    while i < len(L):
        m = re.match(r'(\s*)(//[/!]?) (\S.*)$', L[i])
        if not (m and len(L[i]) > WIDTH and L[i] not in old): out.append(L[i]); i += 1; continue
        ind, mk, t = m.groups(); j = i + 1
        while j < len(L):
            n = re.match(r'(\s*)(//[/!]?) (\S.*)$', L[j])
            if not n or n.group(1) != ind or n.group(2) != mk or re.match(r'([-*#|]|\d+\.|```|`{3}|SAFETY)', n.group(3)): break
            t += ' ' + n.group(3); j += 1
        if '|' in L[i] and L[i].lstrip().startswith(mk + ' |'): out.append(L[i]); i += 1; continue
        w = wrap(mk, ind, t)
        if re.match(r'[-*] ', m.group(3)):
            w = [w[0]] + [ind + mk + '   ' + x[len(ind + mk) + 1:] for x in w[1:]]
        out += w; i = j
    return '\n'.join(out)
def main():
    changed = 0
    for f in RS:
        if not os.path.isfile(f): continue
        t = open(f).read()
        assert ''.join(s for _, s in tokens(t)) == t, f
        n = rust(f, t)
        if n != t: open(f, 'w').write(n); changed += 1
    docs = [r for r in rules if r['kind'] == 'doc']
    pairs = []
    for r in rules:
        if r['kind'] != 'file': continue
        o, n = r['old'], r['new']
        pairs.append((re.compile(r'(?<![\w/-])' + re.escape(o) + r'(?![\w])'), n))
        pairs.append((re.compile(r'(?<![\w/-])' + re.escape(o.replace('crates/', '', 1)) + r'(?![\w])'), n.replace('crates/', '', 1)))
        so, sn = re.sub(r'^crates/[^/]+/src/', '', o), re.sub(r'^crates/[^/]+/src/', '', n)
        if so != o and (so.endswith('.rs') and so.count('/') > 0):
            pairs.append((re.compile(r'(?<![\w/-])' + re.escape(so) + r'(?![\w])'), sn))
    by = collections.defaultdict(set)
    for r in rules:
        if r['kind'] == 'ident' and re.match(r'[A-Z][a-z]+\w*[A-Z]|.*_', r['old']): by[r['old']].add(r['new'])
    uniq = {k: dict(new=list(v)[0], hits=0) for k, v in by.items() if len(v) == 1}
    for f in tracked:
        if not os.path.isfile(f) or not (f.endswith('.md') or f in ('justfile',) or f.endswith('.yml') or f.endswith('.toml')): continue
        if f in ('CHANGELOG.md',) : continue
        t = n = open(f).read()
        for p, x in pairs: n = p.sub(x, n)
        if f.endswith('.md'): n = ticks(n, uniq, f)
        if n != t: open(f, 'w').write(n); changed += 1
    for f in tracked:
        if f.endswith('.rs') or not os.path.isfile(f): continue
        mine = [r for r in docs if r['scope'] not in ('', 'all') and in_scope(f, r['scope'])]
        if not mine: continue
        t = n = open(f).read()
        for r in mine: n = sub(r, n, f)
        if n != t: open(f, 'w').write(n); changed += 1
    for r in rules:
        if r['kind'] != 'file': continue
        if not os.path.exists(r['old']): misses.append('file gone: ' + r['old']); continue
        if os.path.exists(r['new']): misses.append('file exists: ' + r['new']); continue
        os.makedirs(os.path.dirname(r['new']), exist_ok=True)
        subprocess.run(['git', 'mv', r['old'], r['new']], check=True); r['hits'] = 1
    with open(HERE + '/counts.tsv', 'w') as c:
        for r in rules:
            c.write('%s\t%s\t%s\t%s\t%d\t%d\n' % (r['old'], r['new'], r['kind'], r['scope'], r['hits'], len(r['files'])))
            if not r['hits']: misses.append('no hit: line %d %s %s -> %s (%s)' % (r['n'], r['kind'], r['old'], r['new'], r['scope']))
    total = sum(len(v) for v in RW.values())
    gone = [(p, o[0]) for v in RW.values() for k, p, o, n in v if not rw_hits[k]]
    for g in gone: misses.append('comment gone: %s %s' % g)
    open(HERE + '/misses.txt', 'w').write('\n'.join(misses) + '\n')
    print('%d comments of bools' % auto['bool'])
    print('%d files changed, %d rules (%d without a hit), %d comments said anew, %d of them gone, %d misses in misses.txt'
          % (changed, len(rules), sum(not r['hits'] for r in rules), total, len(gone), len(misses)))
if __name__ == '__main__': main()
