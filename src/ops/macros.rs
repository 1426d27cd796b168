//! Macros for code that many operations and transforms share.

/// Methods of a type that set one field each: `field: Type`, `field: Type => Some` for an optional field, or `field: into
/// Type` for whatever can become one.
macro_rules! setters {
    () => {};
    ($(#[$doc:meta])* $field:ident: into $type:ty, $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<$type>) -> Self {
            self.$field = $field.into();
            self
        }

        setters!($($rest)*);
    };
    ($(#[$doc:meta])* $field:ident: $type:ty $(=> $some:ident)?, $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub const fn $field(mut self, $field: $type) -> Self {
            self.$field = $($some)?($field);
            self
        }

        setters!($($rest)*);
    };
}

/// A transform that draws one operation with a probability `p`. Its fields are those of the operation, and `p`.
macro_rules! with_probability {
    (
        $(#[$doc:meta])* pub struct $name:ident { $($field:ident: $type:ty),* }
        $(#[$new:meta])* pub fn new
        draws: $op:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($field: $type,)*
            p: f64,
        }

        impl $name {
            $(#[$new])*
            #[must_use]
            pub const fn new($($field: $type,)* p: f64) -> Self {
                Self { $($field,)* p }
            }

            fn op(&self) -> $crate::ops::Op {
                $(let $field = self.$field;)*
                $op.into()
            }
        }

        impl $crate::ops::transform::RandomTransform for $name {
            fn validate(&self) -> $crate::error::Result<()> {
                $crate::ops::check::probability(Self::NAME, self.p)?;
                self.op().validate()
            }

            fn takes(
                &self,
                pixels: &$crate::ops::values::PixelValues,
            ) -> Option<$crate::error::Result<()>> {
                Some(self.op().takes(pixels))
            }

            fn draw(&self, recipe: &mut $crate::ops::recipe::RecipeBuilder<'_>) -> $crate::error::Result<()> {
                let (rng, _) = recipe.start();
                if rng.chance(self.p) {
                    recipe.push(self.op())?;
                }
                Ok(())
            }
        }
    };
}

/// The methods of an [`Operation`](super::Operation) that leaves each pixel in its place: points keep their
/// coordinates, and masks pass by.
macro_rules! keeps_places {
    () => {
        fn motion(&self, _input: $crate::raster::Size) -> $crate::error::Result<$crate::fields::motion::Motion> {
            Ok($crate::fields::motion::Motion::Keeps)
        }

        fn on_field(
            &self,
            _input: $crate::raster::Size,
            _how: &$crate::ops::FieldContext,
        ) -> $crate::error::Result<Option<$crate::ops::Op>> {
            Ok(None)
        }
    };
}
