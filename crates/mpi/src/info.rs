//! Infos: ordered lists of keys and values (MPI 5.0 chapter 10).

use crate::Identity;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Pairs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// A list of (key, value) pairs of bytes, without the final null. Keys stay in the order in which
/// they were first set.
#[derive(Debug, Default)]
pub struct Info {
    /// The handle.
    pub identity: Identity,
    pairs: Mutex<Pairs>,
}

impl Info {
    /// An empty info.
    pub fn new() -> Arc<Info> {
        Arc::default()
    }

    /// An info with these pairs.
    pub fn of<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Arc<Info> {
        let info = Info::new();
        for (key, value) in pairs {
            info.set(key.as_ref(), value.as_ref());
        }
        info
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the value of a key.
    pub fn set(&self, key: &[u8], value: &[u8]) {
        let mut pairs = self.pairs();
        match pairs.iter_mut().find(|p| &*p.0 == key) {
            Some(pair) => pair.1 = value.into(),
            None => pairs.push((key.into(), value.into())),
        }
    }

    /// Removes a key. False if there is no such key.
    pub fn delete(&self, key: &[u8]) -> bool {
        let mut pairs = self.pairs();
        let before = pairs.len();
        pairs.retain(|p| &*p.0 != key);
        pairs.len() < before
    }

    /// The value of a key.
    pub fn value(&self, key: &[u8]) -> Option<Box<[u8]>> {
        self.pairs()
            .iter()
            .find(|p| &*p.0 == key)
            .map(|p| p.1.clone())
    }

    /// The value of a key, as text.
    pub fn text(&self, key: &str) -> Option<String> {
        self.value(key.as_bytes())
            .map(|v| String::from_utf8_lossy(&v).into_owned())
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key number `n`, from 0.
    pub fn key(&self, n: usize) -> Option<Box<[u8]>> {
        self.pairs().get(n).map(|p| p.0.clone())
    }

    /// An independent copy.
    pub fn duplicate(&self) -> Arc<Info> {
        Arc::new(Info {
            identity: Identity::none(),
            pairs: Mutex::new(self.pairs().clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_are_replaced_in_place() {
        let info = Info::of([("a", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(info.len(), 2);
        assert_eq!(info.key(0).as_deref(), Some(&b"a"[..]));
        assert_eq!(info.text("a").as_deref(), Some("3"));
        assert!(info.delete(b"a") && !info.delete(b"a"));
        assert_eq!(info.key(0).as_deref(), Some(&b"b"[..]));
        assert_eq!(info.key(1), None);
    }

    #[test]
    fn a_copy_is_independent() {
        let info = Info::of([("a", "1")]);
        let copy = info.duplicate();
        info.set(b"a", b"2");
        assert_eq!(copy.text("a").as_deref(), Some("1"));
        assert!(!copy.is_empty() && Info::new().is_empty());
    }
}
