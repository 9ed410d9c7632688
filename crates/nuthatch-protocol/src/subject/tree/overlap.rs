//! Subscriptions whose patterns have subjects in common with another pattern, looked for in steps.
//!
//! How many nodes such a search visits is up to who chose the patterns: `*.*.x` looks at every node
//! of the second level. So it can be interrupted after any number of steps and go on later, and who
//! asks under a lock or for a publisher says how many steps it is worth.

use super::{Edge, NIL, QueueId, ROOT, SubjectTree, Subscribers, edge};
use crate::subject::{Tokens, tokens};

/// How far a search came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchOutcome {
    /// A subscription that was wanted; nothing behind it was looked at.
    Found,
    /// There is none.
    Nothing,
    /// The steps were used up before.
    Interrupted,
}

/// What is left to visit. The stack of these is at most four times as deep as a pattern has tokens.
#[derive(Debug)]
enum Visit<'p> {
    /// A node, of which the rest of the pattern is still to be compared.
    Node(u32, Tokens<'p>),
    /// A literal child and its next siblings, each as [`Visit::Node`].
    Siblings(u32, Tokens<'p>),
    /// A node with all that is below it.
    Whole(u32),
    /// A literal child and its next siblings, each as [`Visit::Whole`].
    WholeSiblings(u32),
}

/// A search of one tree for subscriptions that overlap with a pattern.
#[derive(Debug)]
pub struct OverlapSearch<'p> {
    pattern: &'p [u8],
    left: Vec<Visit<'p>>,
    /// State of the tree that the places in `left` belong to.
    changes: u64,
}

impl<'p> OverlapSearch<'p> {
    /// A search that has not begun.
    #[must_use]
    pub fn new(pattern: &'p [u8]) -> Self {
        Self { pattern, left: vec![Visit::Node(ROOT, tokens(pattern))], changes: 0 }
    }

    /// Goes on with the search in `tree` until `wanted` says yes to a subscription, all is visited or
    /// `steps`, from which those that were needed are taken, are used up. The next call must be for
    /// the same tree; if that was changed meanwhile, the search begins anew.
    pub fn search<T>(
        &mut self,
        tree: &SubjectTree<T>,
        steps: &mut usize,
        mut wanted: impl FnMut(Option<QueueId>, &T) -> bool,
    ) -> SearchOutcome {
        if self.changes != tree.changes {
            self.changes = tree.changes;
            self.left = vec![Visit::Node(ROOT, tokens(self.pattern))];
        }
        while let Some(next) = self.left.pop() {
            if *steps == 0 {
                self.left.push(next);
                return SearchOutcome::Interrupted;
            }
            *steps -= 1;
            if self.visit(tree, next, &mut |at: &Subscribers<T>| at.any(&mut wanted)) {
                return SearchOutcome::Found;
            }
        }
        SearchOutcome::Nothing
    }

    fn visit<T>(
        &mut self,
        tree: &SubjectTree<T>,
        next: Visit<'p>,
        is_wanted: &mut impl FnMut(&Subscribers<T>) -> bool,
    ) -> bool {
        match next {
            Visit::Node(id, rest) => self.visit_node(tree, id, rest, is_wanted),
            Visit::Siblings(id, rest) => {
                self.push(tree.nodes[id as usize].next_sibling, |id| {
                    Visit::Siblings(id, rest.clone())
                });
                self.left.push(Visit::Node(id, rest));
                false
            }
            Visit::Whole(id) => {
                let any_tail = tree.nodes[id as usize].any_tail;
                self.push_children(tree, id);
                ends_wanted(tree, id, is_wanted) || ends_wanted(tree, any_tail, is_wanted)
            }
            Visit::WholeSiblings(id) => {
                self.push(tree.nodes[id as usize].next_sibling, Visit::WholeSiblings);
                self.left.push(Visit::Whole(id));
                false
            }
        }
    }

    fn visit_node<T>(
        &mut self,
        tree: &SubjectTree<T>,
        id: u32,
        mut rest: Tokens<'p>,
        is_wanted: &mut impl FnMut(&Subscribers<T>) -> bool,
    ) -> bool {
        let Some(token) = rest.next() else { return ends_wanted(tree, id, is_wanted) };
        let node = &tree.nodes[id as usize];
        if ends_wanted(tree, node.any_tail, is_wanted) {
            return true;
        }
        let literal = match edge(token, rest.rest().is_none()) {
            Edge::AnyTail => {
                self.push_children(tree, id);
                return false;
            }
            Edge::AnyToken => {
                self.push(node.first_child, |child| Visit::Siblings(child, rest.clone()));
                NIL
            }
            Edge::Literal => tree.literal_child(id, token).unwrap_or(NIL),
        };
        self.push(literal, |child| Visit::Node(child, rest.clone()));
        self.push(node.any_token, |child| Visit::Node(child, rest));
        false
    }

    /// All below a node but its `>` child.
    fn push_children<T>(&mut self, tree: &SubjectTree<T>, id: u32) {
        let node = &tree.nodes[id as usize];
        self.push(node.first_child, Visit::WholeSiblings);
        self.push(node.any_token, Visit::Whole);
    }

    fn push(&mut self, id: u32, visit: impl FnOnce(u32) -> Visit<'p>) {
        if id != NIL {
            self.left.push(visit(id));
        }
    }
}

/// Whether any of those whose pattern ends at a node is wanted.
fn ends_wanted<T>(
    tree: &SubjectTree<T>,
    id: u32,
    is_wanted: &mut impl FnMut(&Subscribers<T>) -> bool,
) -> bool {
    if id == NIL {
        return false;
    }
    let slot = tree.nodes[id as usize].subscribers;
    tree.subscribers.get(slot as usize).is_some_and(is_wanted)
}

impl<T> SubjectTree<T> {
    /// Visits every subscription whose pattern selects at least one subject that `pattern` selects
    /// too, with its queue group, however many steps that takes. For a literal `pattern` that is a
    /// match.
    pub fn for_each_overlapping(&self, pattern: &[u8], mut visit: impl FnMut(Option<QueueId>, &T)) {
        let visit_all = |queue: Option<QueueId>, value: &T| {
            visit(queue, value);
            false
        };
        let outcome = OverlapSearch::new(pattern).search(self, &mut usize::MAX.clone(), visit_all);
        assert_eq!(outcome, SearchOutcome::Nothing, "a search without a bound came to its end");
    }

    /// Whether `wanted` says yes to a subscription that overlaps with `pattern`; `None`: nobody knows
    /// after so many steps.
    pub fn any_overlapping(
        &self,
        pattern: &[u8],
        mut steps: usize,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Option<bool> {
        let mut search = OverlapSearch::new(pattern);
        match search.search(self, &mut steps, |_, value| wanted(value)) {
            SearchOutcome::Found => Some(true),
            SearchOutcome::Nothing => Some(false),
            SearchOutcome::Interrupted => None,
        }
    }
}
