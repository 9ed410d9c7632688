//! Subjects: dot-separated names, and the wildcard patterns that select them.
