//! Packets between cards, and their images in a Write Window.

use super::pattern::Pattern;

/// Bytes of a packet's header.
pub const HEADER_BYTES: u32 = 32;

/// A process: the node of its card, and its place on that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The node.
    pub node: u16,
    /// Its place on the node, from 0.
    pub port: u16,
}

/// What a packet asks of the card that receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// RVS: store these bytes.
    Store {
        /// SO-DIMM address.
        memory: u64,
        /// Where from there.
        pattern: Pattern,
        /// The bytes.
        data: Vec<u8>,
    },
    /// RVL: load bytes and send them back.
    Load {
        /// SO-DIMM address.
        memory: u64,
        /// Where from there.
        pattern: Pattern,
        /// Address in the asking process's Prefetch Window, in packets from an image. Otherwise 0.
        window: u32,
    },
    /// IVS: append these bytes to the sender's ring.
    Append {
        /// The bytes.
        data: Vec<u8>,
    },
    /// The answer to the oldest RVL under way. `None`: those bytes do not exist.
    Loaded {
        /// The bytes.
        data: Option<Vec<u8>>,
    },
    /// The sender's ring is full. It is to send no more to this process.
    Stop,
    /// The sender's ring has room again.
    Go,
}

/// A packet. The sending card writes who sent it, not the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender.
    pub from: Process,
    /// Receiver.
    pub to: Process,
    /// What it asks for.
    pub request: Request,
}

impl Packet {
    /// Its bytes, without what a link adds.
    pub fn bytes(&self) -> u32 {
        let (list, data) = match &self.request {
            Request::Store { pattern, data, .. } => (pattern.list_bytes(), data.len()),
            Request::Load { pattern, .. } => (pattern.list_bytes(), 0),
            Request::Append { data } => (0, data.len()),
            Request::Loaded { data } => (0, data.as_ref().map_or(0, Vec::len)),
            Request::Stop | Request::Go => (0, 0),
        };
        HEADER_BYTES + list + (data as u32).next_multiple_of(8)
    }
}

/// The TYPE of an image: a remote vector store.
const RVS: u8 = 1;
/// The TYPE of an image: a remote vector load.
const RVL: u8 = 2;
/// The TYPE of an image: an indirect vector store.
const IVS: u8 = 3;

/// Why an image is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ImageError {
    /// Shorter than a header, or than its header says.
    #[error("the packet image is cut short")]
    Short,
    /// TYPE is none of RVS, RVL and IVS.
    #[error("the packet image's TYPE is {0}; it can be 1 (RVS), 2 (RVL) or 3 (IVS)")]
    Type(u8),
    /// The addressing is not valid, or moves another number of bytes than there are.
    #[error("the packet image's addressing makes no sense")]
    Addressing,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let (word, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word))
}

/// Encodes the image of a packet with this request. `None`: only cards send such a packet.
pub fn image(to: Process, request: &Request) -> Option<Vec<u8>> {
    let (kind, fields, memory, window, list, data): (u8, _, u64, u32, Vec<u8>, &[u8]) =
        match request {
            Request::Store {
                memory,
                pattern,
                data,
            } => (RVS, pattern.fields(), *memory, 0, pattern.list(), data),
            Request::Load {
                memory,
                pattern,
                window,
            } => (RVL, pattern.fields(), *memory, *window, pattern.list(), &[]),
            Request::Append { data } => (
                IVS,
                (0, data.len() as u32, 0, 1),
                0,
                0,
                Vec::new(),
                data.as_slice(),
            ),
            _ => return None,
        };
    let (addressing, block, stride, count) = fields;
    let mut out = Vec::with_capacity(HEADER_BYTES as usize + list.len() + data.len() + 7);
    out.extend([kind, addressing]);
    out.extend(to.node.to_le_bytes());
    out.extend(to.port.to_le_bytes());
    out.extend([0; 2]);
    out.extend(memory.to_le_bytes());
    for field in [block, stride, count, window] {
        out.extend(field.to_le_bytes());
    }
    out.extend(list);
    out.extend(data);
    out.resize(out.len().next_multiple_of(8), 0);
    Some(out)
}

/// Decodes an image: the receiver, and what it asks for.
///
/// # Errors
/// It is not the image of a packet that a process may send.
pub fn parse(image: &[u8]) -> Result<(Process, Request), ImageError> {
    let field = |at| word(image, at).ok_or(ImageError::Short);
    let first = field(0)?;
    let (kind, addressing) = (first as u8, (first >> 8) as u8);
    let to = Process {
        node: (first >> 16) as u16,
        port: field(4)? as u16,
    };
    let memory = u64::from(field(8)?) | u64::from(field(12)?) << 32;
    let fields = (addressing, field(16)?, field(20)?, field(24)?);
    let window = field(28)?;
    let body = &image[HEADER_BYTES as usize..];
    let (pattern, rest) = Pattern::from_fields(fields, body).ok_or(ImageError::Addressing)?;
    let bytes = usize::try_from(pattern.bytes()).map_err(|_| ImageError::Addressing)?;
    let data = || {
        let data = rest.get(..bytes).ok_or(ImageError::Short)?;
        let padding = rest.len() - bytes;
        if padding >= 8 {
            return Err(ImageError::Addressing);
        }
        Ok(data.to_vec())
    };
    let request = match kind {
        RVS => Request::Store {
            memory,
            data: data()?,
            pattern,
        },
        RVL => Request::Load {
            memory,
            pattern,
            window,
        },
        IVS => match pattern {
            Pattern::Contiguous { .. } => Request::Append { data: data()? },
            _ => return Err(ImageError::Addressing),
        },
        other => return Err(ImageError::Type(other)),
    };
    Ok((to, request))
}

#[cfg(test)]
mod tests {
    use super::super::pattern::tests::patterns;
    use super::*;
    use proptest::prelude::*;

    const TO: Process = Process { node: 3, port: 1 };

    proptest! {
        #[test]
        fn an_image_reads_back(pattern in patterns(), memory in any::<u64>(), which in 0..3) {
            let data: Vec<u8> = (0..pattern.bytes()).map(|i| i as u8).collect();
            let request = match which {
                0 => Request::Store { memory, pattern, data },
                1 => Request::Load { memory, pattern, window: 64 },
                _ => Request::Append { data },
            };
            let image = image(TO, &request).unwrap();
            prop_assert!(image.len().is_multiple_of(8));
            prop_assert_eq!(parse(&image), Ok((TO, request.clone())));
            let packet = Packet { from: TO, to: TO, request };
            prop_assert_eq!(packet.bytes(), image.len() as u32);
        }
    }

    #[test]
    fn cards_alone_stop_and_go() {
        for request in [Request::Stop, Request::Go, Request::Loaded { data: None }] {
            assert_eq!(image(TO, &request), None);
        }
        let mut bytes = image(TO, &Request::Append { data: vec![1; 8] }).unwrap();
        bytes[0] = 5;
        assert_eq!(parse(&bytes), Err(ImageError::Type(5)));
        assert_eq!(parse(&bytes[..31]), Err(ImageError::Short));
    }

    #[test]
    fn fuzz_images() {
        let requests = [
            Request::Append { data: vec![7; 40] },
            Request::Store {
                memory: 4096,
                pattern: Pattern::Stride {
                    block: 8,
                    stride: 64,
                    count: 4,
                },
                data: vec![1; 32],
            },
            Request::Load {
                memory: 0,
                pattern: Pattern::PackedList {
                    block: 4,
                    offsets: vec![9, 3, 1],
                },
                window: 128,
            },
        ];
        let seeds: Vec<Vec<u8>> = requests.iter().filter_map(|r| image(TO, r)).collect();
        ferry_fuzz::fuzz("dimmnet2 images", &seeds, |bytes| match parse(bytes) {
            Ok((to, request)) => {
                let again = image(to, &request).unwrap();
                assert_eq!(parse(&again), Ok((to, request)));
                (0, again.len())
            }
            Err(e) => (1, matches!(e, ImageError::Type(_)) as usize),
        });
    }
}
