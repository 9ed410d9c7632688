//! The subscribers of one pattern, and what a match collects from several.

use super::QueueId;

/// A list that does not allocate for its first value: most patterns have one subscriber.
enum List<T> {
    Empty,
    One(T),
    Many(Vec<T>),
}

impl<T> List<T> {
    fn as_slice(&self) -> &[T] {
        match self {
            Self::Empty => &[],
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    fn push(&mut self, value: T) {
        *self = match std::mem::replace(self, Self::Empty) {
            Self::Empty => Self::One(value),
            Self::One(first) => Self::Many(vec![first, value]),
            Self::Many(mut values) => {
                values.push(value);
                Self::Many(values)
            }
        };
    }

    /// Takes one equal value away; the order of the others may change.
    fn remove(&mut self, value: &T) -> Option<T>
    where
        T: PartialEq,
    {
        let at = self.as_slice().iter().position(|other| other == value)?;
        match std::mem::replace(self, Self::Empty) {
            Self::Empty => None,
            Self::One(only) => Some(only),
            Self::Many(mut values) => {
                let removed = values.swap_remove(at);
                if !values.is_empty() {
                    *self = Self::Many(values);
                }
                Some(removed)
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Many(values) => values.capacity() * size_of::<T>(),
            _ => 0,
        }
    }
}

/// Everyone subscribed to one pattern.
pub(super) struct Subscribers<T> {
    plain: List<T>,
    queues: Vec<(QueueId, List<T>)>,
}

impl<T> Default for Subscribers<T> {
    fn default() -> Self {
        Self { plain: List::Empty, queues: Vec::new() }
    }
}

impl<T> Subscribers<T> {
    pub(super) fn push(&mut self, queue: Option<QueueId>, value: T) {
        let Some(id) = queue else { return self.plain.push(value) };
        match self.queues.iter_mut().find(|(other, _)| *other == id) {
            Some((_, members)) => members.push(value),
            None => self.queues.push((id, List::One(value))),
        }
    }

    pub(super) fn remove(&mut self, queue: Option<QueueId>, value: &T) -> Option<T>
    where
        T: PartialEq,
    {
        let Some(id) = queue else { return self.plain.remove(value) };
        let at = self.queues.iter().position(|(other, _)| *other == id)?;
        let removed = self.queues[at].1.remove(value)?;
        if self.queues[at].1.as_slice().is_empty() {
            self.queues.swap_remove(at);
        }
        Some(removed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.as_slice().is_empty() && self.queues.is_empty()
    }

    /// Asks for each until the answer is yes; whether it ever was.
    pub(super) fn any(&self, wanted: &mut impl FnMut(Option<QueueId>, &T) -> bool) -> bool {
        self.plain.as_slice().iter().any(|value| wanted(None, value))
            || self.queues.iter().any(|(id, members)| {
                members.as_slice().iter().any(|value| wanted(Some(*id), value))
            })
    }

    pub(super) fn first_plain(&self) -> Option<&T> {
        self.plain.as_slice().first()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let members: usize = self.queues.iter().map(|(_, members)| members.heap_bytes()).sum();
        self.plain.heap_bytes() + self.queues.capacity() * size_of::<(QueueId, List<T>)>() + members
    }
}

/// Matches of a subject. Reuse one: clearing keeps its memory.
#[derive(Debug, Clone)]
pub struct MatchResult<T> {
    plain: Vec<T>,
    queued: Vec<(QueueId, T)>,
}

impl<T> Default for MatchResult<T> {
    fn default() -> Self {
        Self { plain: Vec::new(), queued: Vec::new() }
    }
}

impl<T> MatchResult<T> {
    /// Plain subscriptions: each gets the message.
    #[inline]
    #[must_use]
    pub fn plain(&self) -> &[T] {
        &self.plain
    }

    /// Queue groups: one member of each slice gets the message.
    #[inline]
    pub fn groups(&self) -> impl Iterator<Item = (QueueId, &[(QueueId, T)])> {
        self.queued.chunk_by(|a, b| a.0 == b.0).map(|members| (members[0].0, members))
    }

    /// True if there is no match.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.queued.is_empty()
    }

    /// How many subscriptions match, members of groups one by one.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.plain.len() + self.queued.len()
    }

    /// For how many subscriptions memory is kept.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.plain.capacity() + self.queued.capacity()
    }

    /// Forgets what was found and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.plain.clear();
        self.queued.clear();
    }

    /// Adds plain subscriptions that are not in the tree.
    pub fn extend_plain(&mut self, subscriptions: impl Iterator<Item = T>) {
        self.plain.extend(subscriptions);
    }

    #[inline]
    pub(super) fn extend(&mut self, subscribers: &Subscribers<T>)
    where
        T: Clone,
    {
        self.plain.extend_from_slice(subscribers.plain.as_slice());
        for (id, members) in &subscribers.queues {
            self.queued.extend(members.as_slice().iter().map(|value| (*id, value.clone())));
        }
    }

    /// Brings members of one group together, in a stable order.
    #[inline]
    pub(super) fn group(&mut self) {
        if self.queued.len() > 1 {
            self.queued.sort_by_key(|(id, _)| *id);
        }
    }
}
