//! The header of a message in the general queue: what it is, whose it is, and where its bytes
//! belong.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;

/// Bytes of a segment. Messages are rounded up to it.
pub const SEGMENT_BYTES: usize = 256;

/// Most bytes of one datum, all its messages together. It bounds what a peer can make this node
/// allocate.
pub const DATUM_MAX_BYTES: usize = 256 * 1024;

/// Type of data in the general queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// Control information of a user, such as the mailbox that its peer is to send to.
    Control,
    /// Small data of a user.
    Small,
}

/// The header of one message in the general queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// What the message carries.
    pub data_type: DataType,
    /// The receiving user's context.
    pub user: u8,
    /// Number of the message among those of this node pair, modulo 2^16. The hardware keeps the
    /// order, so a gap means that a message is lost.
    pub sequence: u16,
    /// Bytes of the datum, of which the message carries a part.
    pub total: u32,
    /// Where the part begins in the datum.
    pub offset: u32,
}

/// Marks a message of the control level. Anything else in mailbox 0 is foreign.
const MAGIC: u8 = 0xfe;

impl Header {
    /// The header in bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = MAGIC;
        bytes[1] = match self.data_type {
            DataType::Control => 1,
            DataType::Small => 2,
        };
        bytes[2] = self.user;
        bytes[4..6].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.total.to_le_bytes());
        bytes[12..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Splits a message into its header and its part of the datum. The error says what is wrong.
    pub fn parse(message: &[u8]) -> Result<(Header, &[u8]), &'static str> {
        let Some((head, part)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return Err("a message shorter than its header");
        };
        let [
            MAGIC,
            data_type,
            user,
            0,
            s0,
            s1,
            0,
            0,
            t0,
            t1,
            t2,
            t3,
            o0,
            o1,
            o2,
            o3,
        ] = *head
        else {
            return Err("a message without the control level's header");
        };
        let header = Header {
            data_type: match data_type {
                1 => DataType::Control,
                2 => DataType::Small,
                _ => return Err("data of a type that there is not"),
            },
            user,
            sequence: u16::from_le_bytes([s0, s1]),
            total: u32::from_le_bytes([t0, t1, t2, t3]),
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
        };
        if header.total as usize > DATUM_MAX_BYTES {
            return Err("a datum longer than the control level sends");
        }
        let Some(left) = header.total.checked_sub(header.offset) else {
            return Err("a part that is not within its datum");
        };
        let (part, padding) = part.split_at(part.len().min(left as usize));
        if padding.len() >= SEGMENT_BYTES || (part.is_empty() && header.total > 0) {
            return Err("a part that does not fit its datum");
        }
        Ok((header, part))
    }
}
