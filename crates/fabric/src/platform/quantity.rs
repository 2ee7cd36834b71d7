//! Figures of machine files: a value with its unit, and the source of it.

use crate::time::{Rate, Time};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// A number of things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Count(pub u32);

/// A kind of value that a figure can have.
pub trait Quantity: Copy {
    /// How it is written, for error messages.
    const WANTED: &'static str;
    /// Reads it from text. `None` if the text is no such quantity.
    fn read(text: &str) -> Option<Self>;
    /// From a whole number without a unit. `None` if the quantity needs one.
    fn of_number(_: u64) -> Option<Self> {
        None
    }
    /// As a number, to be sent to another process.
    fn bits(self) -> u64;
    /// From such a number. `None` if it is out of range.
    fn of_bits(bits: u64) -> Option<Self>;
    /// As text for people.
    fn shown(self) -> String;
}

/// Splits text into a number that is not negative and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let number = text[..end].replace('_', "").parse::<f64>().ok()?;
    Some((number, text[end..].trim()))
}

/// `number` times `unit`, rounded. `None` if that is more than a figure can be.
fn whole(number: f64, unit: f64) -> Option<u64> {
    let product = (number * unit).round();
    (product.is_finite() && product <= 1e18).then_some(product as u64)
}

impl Quantity for Time {
    const WANTED: &'static str =
        "a time such as \"250 ns\", \"1.5 us\" or \"2 ms\" (units: ps, ns, us, ms, s)";
    fn read(text: &str) -> Option<Time> {
        let (number, unit) = split(text)?;
        let unit = match unit {
            "ps" => 1e0,
            "ns" => 1e3,
            "us" | "µs" => 1e6,
            "ms" => 1e9,
            "s" => 1e12,
            _ => return None,
        };
        whole(number, unit).map(Time::ps)
    }
    fn bits(self) -> u64 {
        self.as_ps()
    }
    fn of_bits(bits: u64) -> Option<Time> {
        Some(Time::ps(bits))
    }
    fn shown(self) -> String {
        self.to_string()
    }
}

impl Quantity for Rate {
    const WANTED: &'static str = "a rate such as \"40 Gbit/s\", \"512 Mbit/s\" or \"1.5 GB/s\" \
                                  (units: kbit/s to Tbit/s, kB/s to TB/s), not zero";
    fn read(text: &str) -> Option<Rate> {
        let (number, unit) = split(text)?;
        let (prefix, bits) = match unit.strip_suffix("bit/s").or(unit.strip_suffix("b/s")) {
            Some(prefix) => (prefix, 1.0),
            None => (unit.strip_suffix("B/s")?, 8.0),
        };
        let unit = match prefix {
            "" => 1.0,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            _ => return None,
        };
        whole(number, unit * bits)
            .filter(|&n| n > 0)
            .map(Rate::bits_per_second)
    }
    fn bits(self) -> u64 {
        Rate::bits(self)
    }
    fn of_bits(bits: u64) -> Option<Rate> {
        (bits > 0).then(|| Rate::bits_per_second(bits))
    }
    fn shown(self) -> String {
        let bits = Rate::bits(self) as f64;
        let (unit, name) = match Rate::bits(self) {
            1_000_000_000.. => (1e9, "Gbit/s"),
            1_000_000.. => (1e6, "Mbit/s"),
            _ => (1.0, "bit/s"),
        };
        format!("{} {name}", bits / unit)
    }
}

impl Quantity for Size {
    const WANTED: &'static str =
        "a size such as \"64 B\", \"4 KiB\" or \"1 MiB\" (units: B, KiB, MiB, GiB)";
    fn read(text: &str) -> Option<Size> {
        let (number, unit) = split(text)?;
        let unit = match unit {
            "B" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1048576.0,
            "GiB" => 1073741824.0,
            _ => return None,
        };
        whole(number, unit).map(Size)
    }
    fn of_number(n: u64) -> Option<Size> {
        Some(Size(n))
    }
    fn bits(self) -> u64 {
        self.0
    }
    fn of_bits(bits: u64) -> Option<Size> {
        Some(Size(bits))
    }
    fn shown(self) -> String {
        match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => format!("{} MiB", n >> 20),
            n if n >= 1024 && n % 1024 == 0 => format!("{} KiB", n >> 10),
            n => format!("{n} B"),
        }
    }
}

impl Quantity for Count {
    const WANTED: &'static str = "a whole number";
    fn read(_: &str) -> Option<Count> {
        None
    }
    fn of_number(n: u64) -> Option<Count> {
        u32::try_from(n).ok().map(Count)
    }
    fn bits(self) -> u64 {
        self.0.into()
    }
    fn of_bits(bits: u64) -> Option<Count> {
        u32::try_from(bits).ok().map(Count)
    }
    fn shown(self) -> String {
        self.0.to_string()
    }
}

/// A figure of a machine file, written as a value or as a table of `value` and `source`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure<T> {
    /// The figure itself.
    pub value: T,
    /// Where it comes from. Empty if the file does not say.
    pub source: String,
}

impl<T> Figure<T> {
    /// A figure without a source.
    pub fn of(value: T) -> Figure<T> {
        let source = String::new();
        Figure { value, source }
    }
}

impl<T: Quantity> Serialize for Figure<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (self.value.bits(), &self.source).serialize(s)
    }
}

impl<'de, T: Quantity> Deserialize<'de> for Figure<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Figure<T>, D::Error> {
        if d.is_human_readable() {
            return d.deserialize_any(Reader::<T, true>(PhantomData));
        }
        let (bits, source) = <(u64, String)>::deserialize(d)?;
        match T::of_bits(bits) {
            Some(value) => Ok(Figure { value, source }),
            None => Err(de::Error::custom("a figure out of range")),
        }
    }
}

/// The `value` in a figure's table.
struct Bare<T>(T);

impl<'de, T: Quantity> Deserialize<'de> for Bare<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Bare<T>, D::Error> {
        d.deserialize_any(Reader::<T, false>(PhantomData))
            .map(|f| Bare(f.value))
    }
}

/// Reads a figure. `TABLE`: it may be written as a table.
struct Reader<T, const TABLE: bool>(PhantomData<T>);

impl<'de, T: Quantity, const TABLE: bool> Visitor<'de> for Reader<T, TABLE> {
    type Value = Figure<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WANTED)?;
        if TABLE {
            f.write_str(", alone or as { value = …, source = \"…\" }")?;
        }
        Ok(())
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Figure<T>, E> {
        let value = T::read(text);
        let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
        value.map(Figure::of).ok_or_else(wrong)
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Figure<T>, E> {
        let value = u64::try_from(n).ok().and_then(T::of_number);
        let wrong = || E::invalid_value(de::Unexpected::Signed(n), &self);
        value.map(Figure::of).ok_or_else(wrong)
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Figure<T>, E> {
        let wrong = || E::invalid_value(de::Unexpected::Unsigned(n), &self);
        T::of_number(n).map(Figure::of).ok_or_else(wrong)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Figure<T>, A::Error> {
        if !TABLE {
            return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
        }
        let (mut value, mut source) = (None, String::new());
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "value" => value = Some(map.next_value::<Bare<T>>()?.0),
                "source" => source = map.next_value()?,
                other => return Err(de::Error::unknown_field(other, &["value", "source"])),
            }
        }
        let value = value.ok_or_else(|| de::Error::missing_field("value"))?;
        Ok(Figure { value, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        assert_eq!(Time::read("1.5 us"), Some(Time::ns(1500)));
        assert_eq!(Time::read("2us"), Some(Time::us(2)));
        assert_eq!(
            Rate::read("512 Mbit/s"),
            Some(Rate::bits_per_second(512_000_000))
        );
        assert_eq!(
            Rate::read("1.5 GB/s"),
            Some(Rate::bits_per_second(12_000_000_000))
        );
        assert_eq!(Rate::read("40 Gb/s"), Rate::read("40 Gbit/s"));
        assert_eq!(Size::read("4 KiB"), Some(Size(4096)));
        for wrong in [
            "",
            "us",
            "-1 us",
            "1",
            "1 year",
            "1e99 s",
            "9999999999999 s",
        ] {
            assert_eq!(Time::read(wrong), None, "{wrong}");
        }
        assert_eq!(Rate::read("0 Mbit/s"), None);
        assert_eq!(Size(4096).shown(), "4 KiB");
        assert_eq!(Rate::bits_per_second(512_000_000).shown(), "512 Mbit/s");
    }
}
