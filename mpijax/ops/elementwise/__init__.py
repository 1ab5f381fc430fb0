"""Operations on one element, or on elements at the same position."""
