"""Operations whose issue has not come yet: they answer 501 in their envelope, which no document can promise."""

PENDING: set[str] = set()
