use super::*;

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
    assert!(asked(None).unwrap().is_empty());
    assert!(asked(Some(" ")).unwrap().is_empty());
    assert!(
        DEFAULT_ORDER
            .iter()
            .all(|name| crate::TRANSPORT_NAMES.contains(name))
    );
    assert_eq!(asked(Some("tcp, shm,tcp")).unwrap(), ["tcp", "shm"]);
    let said = asked(Some("shm,ib")).unwrap_err().to_string();
    assert!(
        said.contains("FERRY_TRANSPORTS") && said.contains("\"ib\""),
        "{said}"
    );
}
