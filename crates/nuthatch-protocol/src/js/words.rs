//! The words of choices, as they stand on the wire.

use super::{
    AckPolicy, DeliverPolicy, DiscardPolicy, PersistMode, ReplayPolicy, RetentionPolicy,
    StorageType, StoreCompression,
};
use std::fmt;

macro_rules! words {
    ($($name:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {
        $(
            impl $name {
                /// The word on the wire.
                #[must_use]
                pub const fn as_str(self) -> &'static str {
                    match self { $(Self::$variant => $word),+ }
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(self.as_str())
                }
            }
        )+

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn words_are_those_of_the_wire() {
                $($(
                    let text = serde_json::to_string(&$name::$variant).expect("a word");
                    assert_eq!(text, concat!('"', $word, '"'));
                )+)+
            }
        }
    };
}

words! {
    RetentionPolicy { Limits = "limits", Interest = "interest", Workqueue = "workqueue" }
    DiscardPolicy { Old = "old", New = "new" }
    StorageType { File = "file", Memory = "memory" }
    StoreCompression { None = "none", S2 = "s2" }
    PersistMode { Default = "default", Async = "async" }
    DeliverPolicy {
        All = "all",
        Last = "last",
        New = "new",
        ByStartSequence = "by_start_sequence",
        ByStartTime = "by_start_time",
        LastPerSubject = "last_per_subject",
    }
    AckPolicy { None = "none", All = "all", Explicit = "explicit", FlowControl = "flow_control" }
    ReplayPolicy { Instant = "instant", Original = "original" }
}
