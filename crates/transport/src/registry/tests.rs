use super::*;

#[test]
fn lists_are_read() {
    assert!(asked(None).unwrap().is_empty());
    assert!(asked(Some(" ")).unwrap().is_empty());
    assert!(
        DEFAULT_ORDER
            .iter()
            .all(|name| TRANSPORT_NAMES.contains(name))
    );
    assert_eq!(asked(Some("tcp, shm,tcp")).unwrap(), ["tcp", "shm"]);
    let said = asked(Some("shm,ib")).unwrap_err().to_string();
    assert!(
        said.contains("FERRY_TRANSPORTS") && said.contains("\"ib\""),
        "{said}"
    );
}
