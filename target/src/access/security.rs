//! How calls are secured, and what exports ask for.

use arrayvec::ArrayVec;
use millrace_store::Caller;
use millrace_wire::rpc::{AUTH_NONE, AUTH_SYS, GssService};

/// How a call is secured: a flavor, and for RPCSEC_GSS with Kerberos the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// AUTH_NONE: callers without credentials are the anonymous user.
    #[default]
    None,
    /// AUTH_SYS.
    Sys,
    /// Kerberos; the header of calls is authenticated.
    Krb5,
    /// Kerberos with integrity.
    Krb5i,
    /// Kerberos with privacy.
    Krb5p,
}

impl Security {
    /// How many there are.
    const COUNT: usize = 5;

    /// All, strongest first.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Krb5p, Self::Krb5i, Self::Krb5, Self::Sys, Self::None];

    /// The number of the flavor (RFC 2623 section 2.2.1 has the pseudo flavors of Kerberos).
    #[must_use]
    pub const fn pseudo_flavor(self) -> u32 {
        match self {
            Self::None => AUTH_NONE,
            Self::Sys => AUTH_SYS,
            Self::Krb5 => 390_003,
            Self::Krb5i => 390_004,
            Self::Krb5p => 390_005,
        }
    }

    /// The service of RPCSEC_GSS, for Kerberos.
    #[must_use]
    pub const fn service(self) -> Option<GssService> {
        match self {
            Self::None | Self::Sys => None,
            Self::Krb5 => Some(GssService::None),
            Self::Krb5i => Some(GssService::Integrity),
            Self::Krb5p => Some(GssService::Privacy),
        }
    }
}

impl From<GssService> for Security {
    fn from(service: GssService) -> Self {
        match service {
            GssService::None => Self::Krb5,
            GssService::Integrity => Self::Krb5i,
            GssService::Privacy => Self::Krb5p,
        }
    }
}

/// What an export takes, in the order of preference, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityList {
    order: ArrayVec<Security, { Security::COUNT }>,
    /// The same, a bit each.
    members: u8,
}

impl SecurityList {
    /// Whether calls secured so are taken.
    #[must_use]
    #[inline]
    pub const fn contains(&self, security: Security) -> bool {
        self.members & (1 << security as u8) != 0
    }

    /// In the order of preference.
    pub fn iter(&self) -> impl Iterator<Item = Security> + '_ {
        self.order.iter().copied()
    }
}

impl FromIterator<Security> for SecurityList {
    fn from_iter<I: IntoIterator<Item = Security>>(securities: I) -> Self {
        let mut list = Self {
            order: ArrayVec::new(),
            members: 0,
        };
        for security in securities {
            if !list.contains(security) {
                list.order.push(security);
                list.members |= 1 << security as u8;
            }
        }
        list
    }
}

impl<const N: usize> From<[Security; N]> for SecurityList {
    fn from(securities: [Security; N]) -> Self {
        securities.into_iter().collect()
    }
}

/// Who a call comes from, before an export squashes users, and how that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallIdentity<'c> {
    /// How the call is secured.
    pub security: Security,
    /// The user that the caller is; `None` without credentials, and for principals that are no
    /// user here.
    pub caller: Option<&'c Caller>,
    /// The principal's name, for Kerberos.
    pub principal: &'c [u8],
}

impl<'c> From<Option<&'c Caller>> for CallIdentity<'c> {
    /// The caller of AUTH_SYS, or of AUTH_NONE.
    #[inline]
    fn from(caller: Option<&'c Caller>) -> Self {
        Self {
            security: match caller {
                Some(_) => Security::Sys,
                None => Security::None,
            },
            caller,
            principal: &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_each_once_in_its_order() {
        let list: SecurityList = [Security::Sys, Security::Krb5p, Security::Sys].into();
        let order: Vec<_> = list.iter().collect();
        assert_eq!(order, [Security::Sys, Security::Krb5p]);
        for security in Security::ALL {
            assert_eq!(list.contains(security), order.contains(&security));
        }
    }
}
