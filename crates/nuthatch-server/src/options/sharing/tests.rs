//! Which exports and imports go together, and how it is said when they do not.

use crate::options::{Command, FileLoader, Invocation, load_with};

fn check_text(accounts: &str) -> Result<(), String> {
    struct Text(String);
    impl nuthatch_protocol::config::Loader for Text {
        fn load(
            &mut self,
            path: &str,
            _from: &str,
        ) -> Result<nuthatch_protocol::config::Source, String> {
            let (name, text) = (path.to_owned(), self.0.clone());
            Ok(nuthatch_protocol::config::Source { name, text })
        }
        fn env(&self, name: &str) -> Option<String> {
            FileLoader.env(name)
        }
    }
    let args = ["-c".to_owned(), "t.conf".to_owned()];
    let mut loader = Text(format!("accounts {{ {accounts} }}"));
    match load_with(Invocation::NatsServer, &args, &mut loader) {
        Ok(Command::Serve(_)) => Ok(()),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn fits(accounts: &str) {
    assert_eq!(check_text(accounts), Ok(()), "{accounts}");
}

#[track_caller]
fn fails(accounts: &str, expect: &str) {
    assert_eq!(check_text(accounts), Err(expect.to_owned()), "{accounts}");
}

#[test]
fn public_and_private_exports() {
    for export in ["{stream: 'a.>'}", "{stream: 'a.>', accounts: [B]}", "{stream: 'a.*'}"] {
        fits(&format!(
            "A {{ exports: [{export}] }}, B {{ imports: [{{stream: {{account: A, subject: 'a.*'}}}}] }}"
        ));
    }
    let expect = "account 'B': Error adding stream import \"a.b\": stream import not authorized";
    for export in ["{stream: 'b.>'}", "{stream: 'a.>', accounts: [C]}", "{service: 'a.>'}"] {
        fails(
            &format!(
                "A {{ exports: [{export}] }}, B {{ imports: [{{stream: {{account: A, subject: a.b}}}}] }}, C {{}}"
            ),
            expect,
        );
    }
    fails(
        "B { imports: [{service: {account: A, subject: a.b}}] }",
        "account 'B': Error adding service import \"a.b\": service import not authorized",
    );
}

#[test]
fn the_importers_name_in_the_subject() {
    let config = |subject: &str| {
        format!(
            "A {{ exports: [{{service: 'q.*', account_token_position: 2}}] }},
             B {{ imports: [{{service: {{account: A, subject: {subject}}}}}] }}"
        )
    };
    fits(&config("q.B"));
    fails(
        &config("q.C"),
        "account 'B': Error adding service import \"q.C\": service import not authorized",
    );
    fails(
        "A { exports: [{service: 'q.x', account_token_position: 2}] }",
        "account 'A': Error adding service export \"q.x\": account_token_position 2 is not a \
         wildcard '*' of \"q.x\"",
    );
}

#[test]
fn cycles_and_duplicates() {
    fails(
        "A { exports: [{service: help}], imports: [{service: {account: B, subject: help}}] },
         B { exports: [{service: help}], imports: [{service: {account: A, subject: help}}] }",
        "account 'B': Error adding service import \"help\": import forms a cycle",
    );
    fails(
        "A { exports: [{stream: 's.>'}], imports: [{stream: {account: B, subject: 's.>'}}] },
         B { exports: [{stream: 's.>'}], imports: [{stream: {account: A, subject: 's.>'}}] }",
        "account 'B': Error adding stream import \"s.>\": import forms a cycle",
    );
    fails(
        "A { exports: [{stream: s}] },
         B { imports: [{stream: {account: A, subject: s}}, {stream: {account: A, subject: s}, to: t}] }",
        "account 'B': Error adding stream import \"s\": stream import already exists",
    );
    fails(
        "A { exports: [{service: s}, {service: t}] },
         B { imports: [{service: {account: A, subject: s}, to: x},
                       {service: {account: A, subject: t}, to: x}] }",
        "account 'B': Error adding service import \"t\": duplicate service import subject \"x\", \
         previously used in import for account \"A\", subject \"s\"",
    );
}

#[test]
fn subjects_that_do_not_fit() {
    let config = |to: &str| {
        format!(
            "A {{ exports: [{{service: 'a.>'}}] }},
             B {{ imports: [{{service: {{account: A, subject: 'a.*.*'}}, to: '{to}'}}] }}"
        )
    };
    for to in ["b.*.*", "b.$2.$1", "$2.x.$1", "a.*.*"] {
        fits(&config(to));
    }
    assert!(check_text(&config("b.*")).unwrap_err().contains("failed to create mapping transform"));
}
