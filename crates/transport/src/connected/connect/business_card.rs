//! A process's business card: for each of its media, what others need to connect to it.
//!
//! ```text
//! u8   version of the card's format
//! then for each medium:  u8 bytes of its name | name | u16 bytes of its part, little endian | part
//! ```

/// Version of the format.
const VERSION: u8 = 2;

/// Encodes a card of these parts: name of the medium and what it says.
pub fn encode<'a>(parts: impl Iterator<Item = (&'a str, Vec<u8>)>) -> Vec<u8> {
    let mut out = vec![VERSION];
    for (name, part) in parts {
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
        out.extend((part.len() as u16).to_le_bytes());
        out.extend(part);
    }
    out
}

/// The parts of a card: name of the medium and what it says. `None`: it is no card.
pub fn decode(bytes: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    let (&VERSION, mut rest) = bytes.split_first()? else {
        return None;
    };
    let mut parts = Vec::new();
    while let Some((&len, more)) = rest.split_first() {
        let (name, more) = more.split_at_checked(len.into())?;
        let (&len, more) = more.split_first_chunk::<2>()?;
        let (part, more) = more.split_at_checked(u16::from_le_bytes(len).into())?;
        parts.push((std::str::from_utf8(name).ok()?, part));
        rest = more;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_fuzz::fuzz;

    #[test]
    fn parts_are_encoded_and_decoded() {
        let card = encode([("tcp", vec![1, 2]), ("tipc", vec![])].into_iter());
        assert_eq!(
            decode(&card).unwrap(),
            [("tcp", &[1, 2][..]), ("tipc", &[][..])]
        );
        assert_eq!(decode(&encode(std::iter::empty())), Some(vec![]));
        for cut in 0..card.len() {
            // Only the end of a part is the end of a card.
            assert_eq!(
                decode(&card[..cut]).is_some(),
                cut == 1 || cut == 9,
                "{cut}"
            );
        }
    }

    #[test]
    fn fuzz_parts_of_cards() {
        let seeds = [
            encode([("tcp", vec![7; 9]), ("tipc", vec![8; 17])].into_iter()),
            encode(std::iter::empty()),
        ];
        fuzz("parts of cards", &seeds, |bytes| match decode(bytes) {
            Some(parts) => {
                let again = encode(parts.iter().map(|&(n, p)| (n, p.to_vec())));
                assert_eq!(again, bytes, "read and written back it differs");
                true
            }
            None => false,
        });
    }
}
