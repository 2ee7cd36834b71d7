//! The names of transports, and FERRY_TRANSPORTS.

use super::open::{DEFAULT_ORDER, requested_names};
use super::*;
use crate::{model, tcp, tipc};

#[test]
fn each_transport_has_its_name() {
    use crate::TRANSPORT_NAMES;
    for (name, index) in [
        ("self", 0),
        ("shm", SHM_INDEX),
        (tcp::NAME, 2),
        (tipc::NAME, 3),
        (model::NAME, 4),
    ] {
        assert_eq!((TRANSPORT_NAMES[index], index_of(name)), (name, index));
    }
}

#[test]
fn lists_are_read() {
    assert!(requested_names(None).unwrap().is_empty());
    assert!(requested_names(Some(" ")).unwrap().is_empty());
    assert!(
        DEFAULT_ORDER
            .iter()
            .all(|name| crate::TRANSPORT_NAMES.contains(name))
    );
    assert_eq!(
        requested_names(Some("tcp, shm,tcp")).unwrap(),
        ["tcp", "shm"]
    );
    let error = requested_names(Some("shm,ib")).unwrap_err().to_string();
    assert!(
        error.contains("FERRY_TRANSPORTS") && error.contains("\"ib\""),
        "{error}"
    );
}
