-- Reads who leads.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
--
-- reply    PTTL of the lock, and owner, term and value if somebody leads
local leader = redis.call('hmget', KEYS[1], 'owner', 'term', 'value')
local leads = held(leader[1] or '-') and leader[3]
local ttl = redis.call('pttl', KEYS[2])
if leads then
    return {ttl, leader[1], leader[2], leader[3]}
end
return {ttl}
