//! Parts of monitoring that need no server.

use super::*;

#[test]
fn durations_like_the_incumbents() {
    for (seconds, text) in [
        (0, "0s"),
        (61, "1m1s"),
        (3600, "1h0m0s"),
        (90_061, "1d1h1m1s"),
        (31_536_000, "1y0d0h0m0s"),
    ] {
        assert_eq!(short_duration(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn options_of_system_requests() {
    let options = serde_json::json!({
        "subscriptions_detail": true, "subscriptions": true, "state": 1, "account": "A", "limit": 3,
        "include_unused": true, "accounts": ["A", "B"], "user": null,
    });
    let query = Query::from_options(options.as_object().unwrap());
    assert_eq!(query.text("subs"), Some("detail"));
    assert_eq!((query.text("state"), query.text("acc")), (Some("closed"), Some("A")));
    assert_eq!((query.number("limit"), query.flag("unused")), (Ok(Some(3)), Ok(true)));
    assert_eq!((query.text("accounts"), query.text("user")), (Some("A,B"), None));
}

#[test]
fn queries() {
    let query = Query::parse("acc=%24G&subs=detail&limit=7&auth=true&x=1+2");
    assert_eq!(query.text("acc"), Some("$G"));
    assert_eq!(query.text("x"), Some("1 2"));
    assert_eq!(query.number("limit"), Ok(Some(7)));
    assert_eq!(query.flag("auth"), Ok(true));
    assert!(query.flag("subs").is_err());
    assert_eq!(query.flag("none"), Ok(false));
}

/// Large documents are made, written and dropped where nobody waits for a worker.
#[tokio::test]
async fn large_documents_are_finished_on_no_worker() {
    let server = Server::new(Options::default(), crate::logging::Logger::silent());
    let here = std::thread::current().id();
    for (endpoint, is_large) in [("/connz", true), ("/subsz", true), ("/varz", false)] {
        let finish = |answer: Answer| (std::thread::current().id(), answer.render().status);
        let query = Query::default();
        let (finished, status) = endpoints::answer(&server, endpoint, &query, finish).await;
        assert_eq!((finished != here, status), (is_large, StatusCode::OK), "{endpoint}");
    }
    let made =
        document(&server, "/connz", &Query::default(), |_| std::thread::current().id()).await;
    assert_ne!(made, Ok(here));
}
