//! How a cluster begins: once, when every listed node has answered and none holds anything.
//!
//! The node whose name is the first writes the founding down on its disk; the others take it from whoever holds it.
//! A disk takes at most one. A majority is not enough: two disks that were wiped would found a second cluster while
//! the third, which holds the first one, is away.

use crate::coding::{Malformed, Reader, Writer};
use crate::rules::Rule;
use crate::types::{LogCount, MemberId};
use nuthatch_quorum::types::{Incarnation, NodeId};

/// A node with its disk, as it says itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its disk as a keeper of the log.
    pub keeper: Incarnation,
    /// Its disk as a member of the group.
    pub member: MemberId,
}

/// A node of the cluster, as it was founded.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Founder {
    /// Its number.
    pub id: NodeId,
    /// Its name and disk.
    pub node: Named,
}

/// What a cluster begins with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Founding {
    /// Identity of the cluster.
    pub cluster: u128,
    /// Its nodes, in the order of their names.
    pub founders: Vec<Founder>,
    /// How many quorum logs it has.
    pub logs: LogCount,
}

/// What a node answers that is asked who it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    /// Who it is.
    pub node: Named,
    /// What it was founded with, or has joined.
    pub founding: Option<Founding>,
}

/// What a node without a cluster does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// It asks again: somebody has not answered, or the one that founds has not yet.
    Wait,
    /// It writes this founding down, and belongs to the cluster.
    Take(Founding),
}

/// Why a node cannot belong to a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FoundingError {
    /// Two nodes have the same name.
    #[error("two of the listed nodes are called {name}: give each its own --node-name")]
    SameName {
        /// The name.
        name: String,
    },
    /// Two nodes belong to different clusters.
    #[error(
        "the listed nodes belong to two clusters, {one:032x} and {other:032x}: --routes names only nodes of one"
    )]
    TwoClusters {
        /// One of them.
        one: u128,
        /// Another one.
        other: u128,
    },
    /// The cluster has no node of this name.
    #[error("the cluster was founded with the nodes {nodes}, and {name} is none of them")]
    Stranger {
        /// This node.
        name: String,
        /// Those that there are.
        nodes: String,
    },
}

impl Founding {
    /// Its bytes.
    pub fn put(&self, to: &mut Writer) {
        to.u128(self.cluster);
        to.all(&self.founders, |to, founder| {
            to.u8(founder.id.0);
            founder.node.put(to);
        });
        self.logs.put(to);
    }

    /// Reads a founding, which is all that is left.
    ///
    /// # Errors
    /// It is none.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let cluster = from.u128()?;
        let founder = |from: &mut Reader<'_>| {
            Ok(Founder { id: NodeId(from.u8()?), node: Named::read(from)? })
        };
        Ok(Self { cluster, founders: from.all(founder)?, logs: LogCount::read(from)? })
    }

    /// The same with so many logs, if it is `fresh`: a node that founds the cluster says how many there are.
    #[must_use]
    pub fn begun_with(self, fresh: u128, logs: LogCount) -> Self {
        if self.cluster == fresh { Self { logs, ..self } } else { self }
    }

    /// The number of the node of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn number(&self, name: &str) -> Result<NodeId, FoundingError> {
        let found = self.founders.iter().find(|founder| founder.node.name == name);
        let names = || self.founders.iter().map(|founder| founder.node.name.as_str());
        found.map(|founder| founder.id).ok_or_else(|| FoundingError::Stranger {
            name: name.to_owned(),
            nodes: names().collect::<Vec<_>>().join(", "),
        })
    }
}

impl Named {
    fn put(&self, to: &mut Writer) {
        to.bytes(self.name.as_bytes());
        to.u128(self.keeper.0);
        to.u64(self.member.0);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            name: from.string()?,
            keeper: Incarnation(from.u128()?),
            member: MemberId(from.u64()?),
        })
    }
}

impl Answer {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        self.node.put(&mut to);
        to.option(self.founding.as_ref(), |to, founding| founding.put(to));
        to.0
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let answer = Self { node: Named::read(&mut from)?, founding: from.option(Founding::read)? };
        from.end()?;
        Ok(answer)
    }
}

/// What `me`, which holds nothing, does when the other listed nodes have answered so; none: this one did not. `fresh`
/// is the cluster's identity, if it is this node that founds it; [`Founding::begun_with`] says with how many logs.
///
/// # Errors
/// [`FoundingError`]: it will never belong to this cluster.
pub fn next(me: &Named, others: &[Option<Answer>], fresh: u128) -> Result<Next, FoundingError> {
    let mut held = others.iter().flatten().filter_map(|answer| answer.founding.as_ref());
    if let Some(founding) = held.next() {
        if let Some(other) = held.find(|other| other.cluster != founding.cluster) {
            let (one, other) = (founding.cluster, other.cluster);
            return Err(FoundingError::TwoClusters { one, other });
        }
        founding.number(&me.name)?;
        return Ok(Next::Take(founding.clone()));
    }
    let mut nodes: Vec<Named> = others.iter().flatten().map(|answer| answer.node.clone()).collect();
    nodes.push(me.clone());
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(twins) = nodes.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(FoundingError::SameName { name: twins[0].name.clone() });
    }
    let listed = others.len() + 1;
    let needed = if Rule::FoundedByAll.holds() { listed } else { listed / 2 + 1 };
    if nodes.len() < needed || nodes[0] != *me {
        return Ok(Next::Wait);
    }
    let founder = |(node, number): (Named, u8)| Founder { id: NodeId(number), node };
    Ok(Next::Take(Founding {
        cluster: fresh,
        founders: nodes.into_iter().zip(1..).map(founder).collect(),
        logs: LogCount::ONE,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Named {
        let number = u64::from(name.as_bytes()[0]);
        Named {
            name: name.to_owned(),
            keeper: Incarnation(number.into()),
            member: MemberId(number),
        }
    }

    fn empty(name: &str) -> Option<Answer> {
        Some(Answer { node: node(name), founding: None })
    }

    fn founded(me: &str, others: &[Option<Answer>]) -> Founding {
        match next(&node(me), others, 7) {
            Ok(Next::Take(founding)) => founding,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_by_name_founds_when_all_have_answered() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let names: Vec<_> =
            founding.founders.iter().map(|f| (f.id.0, f.node.name.as_str())).collect();
        assert_eq!(names, [(1, "a"), (2, "b"), (3, "c")]);
        assert_eq!(next(&node("b"), &[empty("a"), empty("c")], 7), Ok(Next::Wait));
        assert_eq!(next(&node("a"), &[empty("c"), None], 7), Ok(Next::Wait), "one is away");
    }

    #[test]
    fn whoever_holds_one_is_followed_whoever_is_away() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let holds = Some(Answer { node: node("a"), founding: Some(founding.clone()) });
        assert_eq!(next(&node("b"), &[holds.clone(), None], 8), Ok(Next::Take(founding.clone())));
        let stranger = next(&node("d"), &[holds.clone(), None], 8).expect_err("no node of it");
        assert!(stranger.to_string().contains("a, b, c"), "{stranger}");
        let other = Founding { cluster: 9, ..founding };
        let other = Some(Answer { node: node("c"), founding: Some(other) });
        let two = next(&node("b"), &[holds, other], 8);
        assert!(matches!(two, Err(FoundingError::TwoClusters { .. })), "{two:?}");
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let twins = next(&node("a"), &[empty("b"), empty("b")], 7);
        assert_eq!(twins, Err(FoundingError::SameName { name: "b".to_owned() }));
    }

    #[test]
    fn an_answer_has_one_form() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let three = founding.clone().begun_with(7, LogCount::new(3).expect("few"));
        assert_eq!(three.logs.get(), 3);
        assert_eq!(
            three.clone().begun_with(8, LogCount::ONE),
            three,
            "it was founded by another node"
        );
        for founding in [Some(founding), Some(three), None] {
            let answer = Answer { node: node("a"), founding };
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        assert!(Answer::decode(&[1, 2, 3]).is_err());
    }
}
