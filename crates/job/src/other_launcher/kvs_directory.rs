//! Business cards in another launcher's store.

use std::os::fd::BorrowedFd;
use std::sync::{MutexGuard, PoisonError};

use super::encoding::{hex, unhex};
use super::kvs::{Kvs, SharedKvs, launcher_error};
use crate::business_cards::{CARD_MAX_BYTES, Directory, check_put};
use crate::error::JobError;

/// The directory. A business card is cut into pieces that fit into values, with keys
/// `ferry-MEDIUM-RANK-PIECE`. The first value begins with the number of pieces.
pub(super) struct KvsDirectory {
    kvs: SharedKvs,
    me: u32,
    size: u32,
}

impl KvsDirectory {
    pub(super) fn new(kvs: SharedKvs, me: u32, size: u32) -> KvsDirectory {
        KvsDirectory { kvs, me, size }
    }

    fn kvs(&self) -> MutexGuard<'_, Box<dyn Kvs>> {
        self.kvs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory for KvsDirectory {
    fn put(&mut self, medium: &str, card: &[u8]) -> Result<(), JobError> {
        check_put(medium, card)?;
        let me = self.me;
        let mut kvs = self.kvs();
        // Leaves room for the number of pieces, and for what a launcher may add.
        let piece = (kvs.value_max().saturating_sub(24) / 2).clamp(16, CARD_MAX_BYTES);
        let pieces: Vec<&[u8]> = card.chunks(piece).collect();
        let first = pieces.first().copied().unwrap_or_default();
        let start = format!("{}-{}", pieces.len().max(1), hex(first));
        kvs.put(&format!("ferry-{medium}-{me}-0"), &start)?;
        for (number, piece) in pieces.iter().enumerate().skip(1) {
            kvs.put(&format!("ferry-{medium}-{me}-{number}"), &hex(piece))?;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<(), JobError> {
        self.kvs().fence()
    }

    fn get(&mut self, medium: &str, rank: u32) -> Result<Option<Vec<u8>>, JobError> {
        if rank >= self.size {
            return Ok(None);
        }
        let mut kvs = self.kvs();
        let Some(start) = kvs.get(rank, &format!("ferry-{medium}-{rank}-0"))? else {
            return Ok(None);
        };
        let garbled = || launcher_error(format!("rank {rank}'s card for {medium} is garbled"));
        let (pieces, first) = start.split_once('-').ok_or_else(garbled)?;
        let pieces: usize = pieces.parse().map_err(|_| garbled())?;
        let mut card = unhex(first).ok_or_else(garbled)?;
        for number in 1..pieces.min(CARD_MAX_BYTES) {
            let piece = kvs
                .get(rank, &format!("ferry-{medium}-{rank}-{number}"))?
                .ok_or_else(garbled)?;
            card.extend(unhex(&piece).ok_or_else(garbled)?);
            if card.len() > CARD_MAX_BYTES {
                break;
            }
        }
        if card.len() > CARD_MAX_BYTES {
            return Err(garbled());
        }
        Ok(Some(card))
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A store in memory with a longest value.
    struct Memory {
        values: HashMap<String, String>,
        value_max: usize,
    }

    impl Kvs for Memory {
        fn rank(&self) -> u32 {
            0
        }
        fn size(&self) -> u32 {
            2
        }
        fn appnum(&self) -> u32 {
            0
        }
        fn value_max(&self) -> usize {
            self.value_max
        }
        fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
            assert!(value.len() <= self.value_max, "{} bytes", value.len());
            self.values.insert(key.into(), value.into());
            Ok(())
        }
        fn fence(&mut self) -> Result<(), JobError> {
            Ok(())
        }
        fn get(&mut self, _: u32, key: &str) -> Result<Option<String>, JobError> {
            Ok(self.values.get(key).cloned())
        }
        fn nodes(&mut self) -> Result<Option<Vec<u32>>, JobError> {
            Ok(None)
        }
        fn abort(&mut self, _: i32, _: &str) {}
        fn finalize(&mut self) {}
    }

    fn over(values: HashMap<String, String>, value_max: usize) -> KvsDirectory {
        let memory: Box<dyn Kvs> = Box::new(Memory { values, value_max });
        KvsDirectory::new(Arc::new(Mutex::new(memory)), 0, 2)
    }

    #[test]
    fn long_cards_go_in_pieces() {
        for value_max in [128, 799, 1000, 2048] {
            let mut directory = over(HashMap::new(), value_max);
            for len in [0, 1, 386, 387, 3000, CARD_MAX_BYTES] {
                let card: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
                directory.put("tcp", &card).unwrap();
                directory.publish().unwrap();
                let got = directory.get("tcp", 0).unwrap().unwrap();
                assert!(got == card, "{len} bytes in values of {value_max}");
            }
            assert!(directory.get("tcp", 1).unwrap().is_none());
            assert!(directory.get("tcp", 2).unwrap().is_none());
        }
    }

    #[test]
    fn fuzz_cards_of_a_store() {
        let seeds = [b"1-00ff".to_vec(), b"2-00".to_vec(), b"9-zz".to_vec()];
        ferry_fuzz::fuzz("cards of a store", &seeds, |bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let values = ["ferry-tcp-1-0", "ferry-tcp-1-1"];
            let values = values.map(|key| (key.to_string(), text.clone()));
            let got = over(values.into(), 1024).get("tcp", 1);
            if let Ok(Some(card)) = &got {
                assert!(card.len() <= CARD_MAX_BYTES);
            }
            got.is_ok()
        });
    }
}
