//! Settings of operator mode that do not go together or are not there.

use super::{fails, fails_somewhere};

#[test]
fn what_is_refused() {
    fails("resolver: MEMORY", "'resolver' needs an 'operator' whose accounts it is about");
    fails_somewhere(
        "operator: eyJ.a.b",
        "'operator' is no operator JWT: illegal base64 data in the token's header",
    );
    fails_somewhere(
        "resolver: URL(http://localhost:9090/jwt/v1/accounts/)",
        "'resolver' cannot be a URL: this server fetches nothing over HTTP. Keep the accounts in \
         a directory, { type: full, dir: \"jwt\" }, or list them in resolver_preload with MEMORY",
    );
    fails_somewhere(
        "resolver { type: cache, dir: x }",
        "'type' cannot be 'cache': it asks other servers for accounts, and this server is alone. \
         Use full",
    );
    fails_somewhere(
        "resolver { type: full }",
        "'resolver' needs 'dir', the directory of the accounts",
    );
    fails_somewhere(
        "resolver { type: full, dir: x, hard_delete: true }",
        "'hard_delete' has no effect without allow_delete",
    );
    fails_somewhere(
        "trusted_keys: [x]",
        "'trusted_keys' holds 'x', not a public nkey of an operator (O…)",
    );
    fails_somewhere("resolver_preload { AX: eyJ }", "'AX' invalid account JWT: expected 3 chunks");
    fails_somewhere(
        "default_sentinel: eyJ",
        "'default_sentinel' default sentinel JWT not valid: expected 3 chunks",
    );
}
