//! How a cluster begins: once, when every listed node has answered and none holds anything.
//!
//! The node whose name is the first writes the founding down on its disk; the others take it from whoever holds it.
//! A disk takes at most one. A majority is not enough: two disks that were wiped would found a second cluster while
//! the third, which holds the first one, is away.

use crate::coding::{LATER, Malformed, Reader, Writer, malformed};
use crate::roster::{Enrolled, Refusal, Roster};
use crate::rules::Rule;
use crate::types::{LogCount, MemberId, Protocol};
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
    /// What its nodes speak from the beginning on.
    pub active: Protocol,
}

/// What a node answers that is asked who it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Answer {
    /// Who it is.
    pub node: Named,
    /// What its cluster was founded with.
    pub founding: Option<Founding>,
    /// Who the nodes of that are by now, where they are not as they were founded.
    pub roster: Option<Roster>,
}

/// What a node without a cluster does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// It asks again: somebody has not answered, or the one that founds has not yet.
    Wait,
    /// It writes this founding down, and belongs to the cluster, which has these nodes by now.
    Take(Founding, Roster),
    /// It is no node of this cluster, and asks to become one: these are its nodes.
    Join(Founding, Roster),
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
    /// A node of this name was removed.
    #[error("{}", Refusal::NameGone(name.clone()))]
    Removed {
        /// This node.
        name: String,
    },
}

impl Founding {
    /// The nodes as they were founded.
    #[must_use]
    pub fn roster(&self) -> Roster {
        let enrolled = |founder: &Founder| {
            let (name, member) = (founder.node.name.clone(), founder.node.member);
            (founder.id, Enrolled { name, member, address: None, keeps: true })
        };
        let nodes = self.founders.iter().map(enrolled).collect();
        Roster { nodes, active: self.active, ..Roster::default() }
    }

    /// Its bytes.
    pub fn put(&self, to: &mut Writer) {
        to.u128(self.cluster);
        to.all(&self.founders, |to, founder| {
            to.u8(founder.id.0);
            founder.node.put(to);
        });
        self.logs.put(to);
        put_active(to, self.active);
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
        let (founders, logs) = (from.all(founder)?, LogCount::read(from)?);
        Ok(Self { cluster, founders, logs, active: active(from)? })
    }

    /// The same with so many logs and such a protocol, if it is `fresh`: a node that founds the cluster says both.
    #[must_use]
    pub fn begun_with(self, fresh: u128, logs: LogCount, active: Protocol) -> Self {
        if self.cluster == fresh { Self { logs, active, ..self } } else { self }
    }
}

/// Where a founding has a later protocol than the first one: it follows. No number of logs begins like this.
const WITH_ACTIVE: u8 = 0;

/// Appends what a cluster speaks from its founding on, behind everything else of a document. The first protocol is written as
/// nothing, as before there was another.
pub fn put_active(to: &mut Writer, active: Protocol) {
    if active > Protocol::FIRST {
        to.u8(WITH_ACTIVE);
        to.u8(active.0);
    }
}

/// Reads what a cluster speaks from its founding on, which is all that is left of a document.
///
/// # Errors
/// It is something else, or a protocol that this program does not know.
pub fn active(from: &mut Reader<'_>) -> Result<Protocol, Malformed> {
    if from.0.is_empty() {
        return Ok(Protocol::FIRST);
    }
    match (from.u8()?, Protocol(from.u8()?)) {
        (WITH_ACTIVE, later) if later > Protocol::NEWEST => Err(malformed(LATER)),
        (WITH_ACTIVE, active) if active > Protocol::FIRST && from.0.is_empty() => Ok(active),
        _ => Err(malformed("a cluster was founded with something unknown")),
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

/// Where an answer says whether it has a founding: it has one, and a roster before it.
const WITH_ROSTER: u8 = 2;

impl Answer {
    /// The founding that it has, and who the nodes are by now.
    fn held(&self) -> Option<(&Founding, Roster)> {
        let founding = self.founding.as_ref()?;
        let roster = self.roster.clone().unwrap_or_else(|| founding.roster());
        Some((founding, roster))
    }

    /// Its bytes.
    ///
    /// # Panics
    /// It has a roster and no founding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        self.node.put(&mut to);
        match &self.roster {
            None => to.option(self.founding.as_ref(), |to, founding| founding.put(to)),
            Some(roster) => {
                // The founding ends with what is left of a document: so it is one of its own.
                to.u8(WITH_ROSTER);
                roster.put(&mut to);
                let founding = self.founding.as_ref().expect("a roster is of a cluster");
                founding.put(&mut to);
            }
        }
        to.0
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let node = Named::read(&mut from)?;
        let roster = match from.0.first() {
            Some(&WITH_ROSTER) => {
                from.u8()?;
                Some(Roster::read(&mut from)?)
            }
            _ => None,
        };
        let founding = match roster {
            None => from.option(Founding::read)?,
            Some(_) => Some(Founding::read(&mut from)?),
        };
        from.end()?;
        Ok(Self { node, founding, roster })
    }
}

/// What `me`, which holds nothing, does when the other listed nodes have answered so; none: this one did not. `fresh`
/// is the cluster's identity, if it is this node that founds it; [`Founding::begun_with`] says with how many logs.
///
/// # Errors
/// [`FoundingError`]: it will never belong to this cluster.
pub fn next(me: &Named, others: &[Option<Answer>], fresh: u128) -> Result<Next, FoundingError> {
    if let Some(held) = newest(others)? {
        return belong(me, held);
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
    let founding = Founding {
        cluster: fresh,
        founders: nodes.into_iter().zip(1..).map(founder).collect(),
        logs: LogCount::ONE,
        active: Protocol::FIRST,
    };
    let roster = founding.roster();
    Ok(Next::Take(founding, roster))
}

/// What the nodes hold that have answered, as the one knows it that has seen most.
fn newest(others: &[Option<Answer>]) -> Result<Option<(Founding, Roster)>, FoundingError> {
    let mut newest: Option<(Founding, Roster)> = None;
    for (founding, roster) in others.iter().flatten().filter_map(Answer::held) {
        match &newest {
            Some((known, _)) if known.cluster != founding.cluster => {
                let (one, other) = (known.cluster, founding.cluster);
                return Err(FoundingError::TwoClusters { one, other });
            }
            Some((_, known)) if known.changes >= roster.changes => {}
            _ => newest = Some((founding.clone(), roster)),
        }
    }
    Ok(newest)
}

/// How a node without a cluster comes to one that there is.
fn belong(me: &Named, (founding, roster): (Founding, Roster)) -> Result<Next, FoundingError> {
    if roster.gone(&me.name).is_some() {
        return Err(FoundingError::Removed { name: me.name.clone() });
    }
    Ok(match roster.number(&me.name) {
        Some(_) => Next::Take(founding, roster),
        None => Next::Join(founding, roster),
    })
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
        Some(Answer { node: node(name), founding: None, roster: None })
    }

    fn founded(me: &str, others: &[Option<Answer>]) -> Founding {
        match next(&node(me), others, 7) {
            Ok(Next::Take(founding, roster)) => {
                assert_eq!(roster, founding.roster());
                founding
            }
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
    fn a_founding_says_what_its_nodes_speak_if_it_is_not_the_first_protocol() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let bytes = |founding: &Founding| {
            let mut to = Writer::default();
            founding.put(&mut to);
            to.0
        };
        let one = bytes(&founding).len();
        for logs in [LogCount::ONE, LogCount::MAX, LogCount::MOST.in_bucket()] {
            for active in [Protocol::FIRST, Protocol::NEWEST] {
                let founding = founding.clone().begun_with(7, logs, active);
                let bytes = bytes(&founding);
                let more = usize::from(logs != LogCount::ONE);
                let later = if active > Protocol::FIRST { 2 } else { 0 };
                assert_eq!(bytes.len(), one + more + later);
                assert_eq!(Founding::read(&mut Reader(&bytes)), Ok(founding.clone()));
                assert_eq!(founding.roster().active, active);
            }
        }
        assert_eq!(
            founding.clone().begun_with(8, LogCount::MAX, Protocol(5)),
            founding,
            "another's"
        );
        for bad in [&[0][..], &[0, 4], &[0, 0], &[1, 0, 5], &[0, 5, 0], &[0, 255]] {
            let mut bytes = bytes(&founding);
            bytes.extend_from_slice(bad);
            assert!(Founding::read(&mut Reader(&bytes)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn whoever_holds_one_is_followed_whoever_is_away() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let roster = founding.roster();
        let holds = |roster| Answer { node: node("a"), founding: Some(founding.clone()), roster };
        let take = Ok(Next::Take(founding.clone(), roster.clone()));
        assert_eq!(next(&node("b"), &[Some(holds(None)), None], 8), take);
        let other = Founding { cluster: 9, ..founding.clone() };
        let other = Some(Answer { node: node("c"), founding: Some(other), roster: None });
        let two = next(&node("b"), &[Some(holds(None)), other], 8);
        assert!(matches!(two, Err(FoundingError::TwoClusters { .. })), "{two:?}");
    }

    #[test]
    fn a_node_of_another_name_asks_to_join_and_a_removed_one_does_not_come_back() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let holds =
            |roster| Some(Answer { node: node("a"), founding: Some(founding.clone()), roster });
        let mut roster = founding.roster();
        let join = Ok(Next::Join(founding.clone(), roster.clone()));
        assert_eq!(next(&node("d"), &[None, holds(None)], 8), join);
        let (name, member) = ("d".to_owned(), MemberId(4));
        let join = crate::Change::Join { name, member, address: None };
        roster.make(&join).expect("a spare");
        let replacing = crate::Replacing { old: NodeId(1), new: NodeId(4) };
        roster.make(&crate::Change::Begin(replacing)).expect("it begins");
        roster.make(&crate::Change::Swap(replacing)).expect("it ends");
        // Whoever knows more counts.
        let others = [holds(None), holds(Some(roster.clone()))];
        let take = Ok(Next::Take(founding.clone(), roster));
        assert_eq!(next(&node("d"), &others, 8), take);
        let gone = next(&node("a"), &others, 8).expect_err("it was removed");
        assert!(gone.to_string().contains("a node called a was removed"), "{gone}");
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let twins = next(&node("a"), &[empty("b"), empty("b")], 7);
        assert_eq!(twins, Err(FoundingError::SameName { name: "b".to_owned() }));
    }

    #[test]
    fn an_answer_has_one_form() {
        let founding = founded("a", &[empty("c"), empty("b")]);
        let three = founding.clone().begun_with(7, LogCount::new(3).expect("few"), Protocol::FIRST);
        assert_eq!(three.logs.get(), 3);
        assert_eq!(
            three.clone().begun_with(8, LogCount::ONE, Protocol::FIRST),
            three,
            "it was founded by another node"
        );
        for founding in [Some(founding), Some(three), None] {
            let mut roster = founding.as_ref().map(Founding::roster);
            if let Some(roster) = &mut roster {
                let (name, member) = ("d".to_owned(), MemberId(4));
                let join = crate::Change::Join { name, member, address: None };
                roster.make(&join).expect("a spare");
            }
            for roster in [None, roster] {
                let answer = Answer { node: node("a"), founding: founding.clone(), roster };
                assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
            }
        }
        assert!(Answer::decode(&[1, 2, 3]).is_err());
    }
}
