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
        "resolver: URL(localhost:9090/jwt/v1/accounts/)",
        "'resolver' has an address that begins with neither http:// nor https://",
    );
    fails_somewhere(
        "resolver { type: cache, dir: x, allow_delete: true }",
        "'allow_delete' does not go with type cache",
    );
    fails_somewhere(
        "resolver { type: cache, dir: x, interval: '1s' }",
        "'interval' does not go with type cache",
    );
    fails_somewhere(
        "resolver { type: full, dir: x, ttl: '1h' }",
        "'ttl' belongs to type cache: type full keeps all accounts",
    );
    fails_somewhere(
        "resolver { type: cache, dir: x, timeout: '2m' }",
        "'timeout' is longer than 60s",
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
