use std::fmt;
use std::str::FromStr;

/// Where an effect stands among those of the visit: its number in the run, and for one of a
/// step within the run the number of that step before it. `3_1` is the second effect of the
/// step that is the fourth effect of the action.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(Vec<u32>);

impl Place {
    /// The place of an effect within this one; of the action itself for the default.
    pub(crate) fn within(&self, number: u32) -> Self {
        let mut path = Vec::with_capacity(self.0.len() + 1);
        path.extend_from_slice(&self.0);
        path.push(number);
        Self(path)
    }

    /// The place that this one is directly within; of the action itself for its own effects.
    pub(crate) fn around(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    /// Whether this place is within another one.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.len() > other.0.len() && self.0.starts_with(&other.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, number) in self.0.iter().enumerate() {
            let separator = if depth == 0 { "" } else { "_" };
            write!(f, "{separator}{number}")?;
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split('_').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_it_is_written_and_sorts_before_what_is_within_it() {
        let place: Place = "3".parse().unwrap();
        let inner = place.within(1).within(20);
        assert_eq!(inner.to_string(), "3_1_20");
        assert_eq!("3_1_20".parse::<Place>().unwrap(), inner);
        assert!(
            place < inner
                && inner < place.within(2)
                && place.within(2) < Place::default().within(4)
        );
        assert_eq!(
            (inner.around().to_string(), place.around()),
            ("3_1".to_owned(), Place::default())
        );
        assert!(inner.is_within(&place) && !place.is_within(&place));
        assert!(place.is_within(&Place::default()));
        for bad in ["", "_", "3_", "x", "-1"] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
