-- Raises a fencing counter to a token given by another server: the next token is greater. The
-- script never lowers a counter: repeated or late, it does no harm.
--
-- KEYS[1]  fencing counter
-- ARGV[1]  token
--
-- reply    {1}              the counter is at least the token
--          {-1, key, type}  the key is no counter
local token = newest(KEYS[1])
if not token then
    return strange(KEYS[1])
end
if less(token, ARGV[1]) then
    count(KEYS[1], ARGV[1], redis.call('pttl', KEYS[1]))
end
return {1}
