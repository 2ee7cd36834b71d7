//! Performance variables: their names, handles and values.

use super::*;

fn named(name: &str) -> &'static Performance {
    Performance::all().iter().find(|p| p.name == name).unwrap()
}

#[test]
fn names_are_told_apart() {
    let mut names: Vec<_> = Performance::all().iter().map(|p| &p.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), Performance::all().len());
    assert_eq!(
        Performance::index(Class::Level, "sleeps"),
        Err(ToolError::InvalidName)
    );
    let at = Performance::index(Class::Counter, "sleeps").unwrap();
    assert_eq!(Performance::all()[at].name, "sleeps");
}

#[test]
fn handles_count_from_their_own_start() {
    let session = Session::default();
    let written = session.handle(named("sleeps"), None);
    assert_eq!(written.read(), Value::Large(0));
    written.write(Value::Large(7)).unwrap();
    assert_eq!(written.read(), Value::Large(7));
    written.start().unwrap();
    assert_eq!(written.read_reset(), Ok(Value::Large(7)));
    assert_eq!(written.read(), Value::Large(0));
    let timer = session.handle(named("time_waiting"), None);
    timer.write(Value::Double(1.5)).unwrap();
    assert_eq!(timer.read(), Value::Double(1.5));
    session.reset_all();
    assert_eq!(timer.read(), Value::Double(0.));
    session.forget(&timer);
    assert!(session.has(&written) && !session.has(&timer));
}

#[test]
fn levels_cannot_be_written_and_always_run() {
    let session = Session::default();
    let level = session.handle(named("unexpected_queue_length"), None);
    assert_eq!(level.start(), Err(ToolError::NoStartStop));
    assert_eq!(level.reset(), Err(ToolError::NoWrite));
    assert_eq!(level.read_reset(), Err(ToolError::NoWrite));
    assert_eq!(level.read(), Value::Large(0));
    let most = session.handle(named("unexpected_queue_length_max"), None);
    assert_eq!(most.stop(), Err(ToolError::NoStartStop));
    most.write(Value::Large(9)).unwrap();
    assert_eq!(most.read_reset(), Ok(Value::Large(9)));
    assert_eq!(most.read(), Value::Large(0));
}
