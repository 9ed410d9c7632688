//! Detection of overlapping subjects in a list, by a tree of all of them.
//!
//! Comparing every subject with every other one is quadratic: 100,000 take minutes. Here the list
//! becomes a tree by tokens that is walked against itself. Two nodes are compared only if their
//! paths go together, and of two nodes the children of the smaller one are looked up in the other,
//! so literals and the usual wildcards cost about as much as sorting them. Wildcards can be chosen
//! so that no method is fast; the walk has a bound above which the answer is [`TooTangled`]. Children are kept in order, not hashed: nobody can choose collisions.

use std::collections::BTreeMap;

/// Pairs of different nodes that a walk compares at most off the sequencer: less than a second.
pub const STEPS_MAX: usize = 4_000_000;
/// The same for the filters of a consumer: some ten milliseconds.
pub const FILTER_STEPS_MAX: usize = 200_000;
/// Overlapping pairs that are looked at for the one that comes first in the list.
const PAIRS_MAX: usize = 1_024;
const ROOT: u32 = 0;

/// The relation looked for between two subjects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// Some literal matches both.
    Overlap,
    /// Every literal that matches the one matches the other as well.
    Within,
}

/// The list can not be checked in as many steps as are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("subjects with wildcards are too entangled: more than {steps_max} steps to compare them")]
pub struct TooTangled {
    /// The bound.
    pub steps_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Node {
    /// Place in the list of the subject that ends here.
    here: Option<usize>,
    /// Place of the subject that ends here with `>`.
    rest: Option<usize>,
    /// The first place of any subject that goes on below.
    below: Option<usize>,
    /// Child for `*`; 0 for none.
    star: u32,
    /// Children for other tokens.
    literals: u32,
}

/// Notes steps of work, for the tests that bound them.
#[cfg(not(test))]
const fn note_steps(_: usize) {}
#[cfg(test)]
use tests::note_steps;

/// A list of subjects as a tree.
struct Tree<'a> {
    nodes: Vec<Node>,
    literals: BTreeMap<(u32, &'a [u8]), u32>,
}

/// Finds two subjects of a list that stand in `relation`, as places in the list: the pair that comes
/// first (any pair, if there are thousands). Overlapping ones are in the order of the list; of two of
/// which one lies within the other, that one comes first. Equal subjects stand in both relations.
/// What is said of invalid subjects means nothing.
///
/// Near-linear, and at most `steps_max` comparisons beyond that.
///
/// # Errors
/// [`TooTangled`].
pub fn first_pair<'a>(
    subjects: impl IntoIterator<Item = &'a [u8]>,
    relation: Relation,
    steps_max: usize,
) -> Result<Option<(usize, usize)>, TooTangled> {
    let mut tree = Tree { nodes: vec![Node::default()], literals: BTreeMap::new() };
    let stack = vec![(ROOT, ROOT)];
    let mut walk = Walk { relation, found: None, pairs: 0, steps: 0, steps_max, stack };
    for (place, subject) in subjects.into_iter().enumerate() {
        if let Some(same) = tree.insert(subject, place) {
            walk.note(Some(same), Some(place));
        }
    }
    while walk.pairs < PAIRS_MAX
        && let Some((one, other)) = walk.stack.pop()
    {
        note_steps(1);
        walk.compare_ends(&tree, one, other);
        walk.push_children(&tree, one, other)?;
    }
    Ok(walk.found)
}

impl<'a> Tree<'a> {
    /// Adds a subject; returns the place of an equal one that is there already.
    fn insert(&mut self, subject: &'a [u8], place: usize) -> Option<usize> {
        let mut at = ROOT;
        let mut tokens = subject.split(|&byte| byte == b'.').peekable();
        while let Some(token) = tokens.next() {
            note_steps(1);
            if token == b">" && tokens.peek().is_none() {
                let rest = &mut self.nodes[at as usize].rest;
                let same = *rest;
                rest.get_or_insert(place);
                return same;
            }
            self.nodes[at as usize].below.get_or_insert(place);
            at = if token == b"*" { self.star(at) } else { self.literal(at, token) };
        }
        let here = &mut self.nodes[at as usize].here;
        let same = *here;
        here.get_or_insert(place);
        same
    }

    /// The child for `*`, made if it is missing.
    fn star(&mut self, at: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let star = &mut self.nodes[at as usize].star;
        if *star == 0 {
            *star = next;
            self.nodes.push(Node::default());
            return next;
        }
        *star
    }

    /// The child for a token, made if it is missing.
    fn literal(&mut self, at: u32, token: &'a [u8]) -> u32 {
        let next = self.nodes.len() as u32;
        let child = *self.literals.entry((at, token)).or_insert(next);
        if child == next {
            self.nodes[at as usize].literals += 1;
            self.nodes.push(Node::default());
        }
        child
    }

    fn find(&self, at: u32, token: &[u8]) -> Option<u32> {
        self.literals.get(&(at, token)).copied()
    }

    fn literals(&self, at: u32) -> impl Iterator<Item = (&'a [u8], u32)> + '_ {
        let first: &[u8] = b"";
        self.literals
            .range((at, first)..(at + 1, first))
            .map(|(&(_, token), &child)| (token, child))
    }
}

/// A walk of the tree against itself: pairs of nodes whose paths stand in the relation, under
/// [`Relation::Within`] the narrower one first.
struct Walk {
    relation: Relation,
    found: Option<(usize, usize)>,
    pairs: usize,
    steps: usize,
    steps_max: usize,
    stack: Vec<(u32, u32)>,
}

impl Walk {
    /// Notes two subjects that stand in the relation, if there are two.
    fn note(&mut self, one: Option<usize>, other: Option<usize>) {
        let (Some(one), Some(other)) = (one, other) else { return };
        let pair = match self.relation {
            Relation::Overlap => (one.min(other), one.max(other)),
            Relation::Within => (one, other),
        };
        self.pairs += 1;
        self.found = Some(self.found.map_or(pair, |found| found.min(pair)));
    }

    /// Compares the subjects that end at two nodes.
    fn compare_ends(&mut self, tree: &Tree<'_>, one: u32, other: u32) {
        let (a, b) = (tree.nodes[one as usize], tree.nodes[other as usize]);
        self.note(a.below, b.rest);
        if one == other {
            return;
        }
        self.note(a.here, b.here);
        self.note(a.rest, b.rest);
        if self.relation == Relation::Overlap {
            self.note(a.rest, b.below);
        }
    }

    fn push_children(&mut self, tree: &Tree<'_>, one: u32, other: u32) -> Result<(), TooTangled> {
        let (a, b) = (tree.nodes[one as usize], tree.nodes[other as usize]);
        if one == other {
            // As many steps as the tree has nodes: not counted.
            note_steps(a.literals as usize);
            self.stack.extend(tree.literals(one).map(|(_, child)| (child, child)));
            if a.star != 0 {
                self.stack.push((a.star, a.star));
                self.stack.extend(tree.literals(one).map(|(_, child)| (child, a.star)));
            }
            return Ok(());
        }
        let (fewer, more) = if a.literals <= b.literals { (one, other) } else { (other, one) };
        self.count(tree.nodes[fewer as usize].literals)?;
        for (token, child) in tree.literals(fewer) {
            if let Some(same) = tree.find(more, token) {
                self.stack.push(if fewer == one { (child, same) } else { (same, child) });
            }
        }
        if b.star != 0 {
            self.count(a.literals)?;
            self.stack.extend(tree.literals(one).map(|(_, child)| (child, b.star)));
        }
        if a.star != 0 && b.star != 0 {
            self.stack.push((a.star, b.star));
        }
        if a.star != 0 && self.relation == Relation::Overlap {
            self.count(b.literals)?;
            self.stack.extend(tree.literals(other).map(|(_, child)| (a.star, child)));
        }
        Ok(())
    }

    /// Counts the comparison of a pair of nodes and of `more` of their children.
    fn count(&mut self, more: u32) -> Result<(), TooTangled> {
        note_steps(more as usize);
        self.steps += 1 + more as usize;
        let steps_max = self.steps_max;
        if self.steps > steps_max { Err(TooTangled { steps_max }) } else { Ok(()) }
    }
}

/// Patterns as a tree that is asked which literals and patterns they meet. The cost of a question
/// does not grow with their number, but for those with many `*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PatternTree {
    nodes: Vec<Node>,
    /// Children by parent and token, in order.
    literals: Vec<(u32, Box<[u8]>, u32)>,
}

impl PatternTree {
    /// The tree of valid patterns.
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut tree = Tree { nodes: vec![Node::default()], literals: BTreeMap::new() };
        for (place, pattern) in patterns.into_iter().enumerate() {
            tree.insert(pattern, place);
        }
        let own = |((parent, token), child): ((u32, &[u8]), u32)| (parent, token.into(), child);
        Self { nodes: tree.nodes, literals: tree.literals.into_iter().map(own).collect() }
    }

    /// Memory of the tree, bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let tokens: usize = self.literals.iter().map(|(_, token, _)| token.len()).sum();
        size_of_val(self.nodes.as_slice()) + size_of_val(self.literals.as_slice()) + tokens
    }

    /// True if any pattern matches a literal.
    pub(crate) fn matches(&self, literal: &[u8]) -> bool {
        self.matches_below(ROOT, Some(literal))
    }

    fn matches_below(&self, mut at: u32, mut left: Option<&[u8]>) -> bool {
        loop {
            let node = &self.nodes[at as usize];
            let Some(text) = left else { return node.here.is_some() };
            if node.rest.is_some() {
                return true;
            }
            let (token, rest) = cut(text);
            if node.star != 0 && self.matches_below(node.star, rest) {
                return true;
            }
            let Some(child) = self.find(at, token) else { return false };
            (at, left) = (child, rest);
        }
    }

    /// True if any pattern overlaps with this one.
    pub(crate) fn overlaps(&self, pattern: &[u8]) -> bool {
        let mut stack = vec![(ROOT, Some(pattern))];
        while let Some((at, left)) = stack.pop() {
            note_steps(1);
            let node = &self.nodes[at as usize];
            let Some(text) = left else {
                if node.here.is_some() {
                    return true;
                }
                continue;
            };
            if node.rest.is_some() || (text == b">" && node.below.is_some()) {
                return true;
            }
            let (token, rest) = cut(text);
            if node.star != 0 {
                stack.push((node.star, rest));
            }
            if token == b"*" {
                stack.extend(self.literals(at).map(|child| (child, rest)));
            } else {
                stack.extend(self.find(at, token).map(|child| (child, rest)));
            }
        }
        false
    }

    fn find(&self, at: u32, token: &[u8]) -> Option<u32> {
        let place =
            |(parent, known, _): &(u32, Box<[u8]>, u32)| (*parent, &**known).cmp(&(at, token));
        self.literals.binary_search_by(place).ok().map(|found| self.literals[found].2)
    }

    fn literals(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let start = self.literals.partition_point(|&(parent, ..)| parent < at);
        let own = self.literals[start..].iter().take_while(move |&&(parent, ..)| parent == at);
        own.map(|&(_, _, child)| child)
    }
}

/// The first token, and what follows it.
fn cut(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], Some(&text[dot + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
pub(crate) mod tests;
