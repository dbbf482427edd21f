-- Grants a free lock to an owner, whoever queues.
--
-- key      lock
-- counter  fencing counter; nil for a lock without tokens
-- lease    milliseconds
-- owner    a new one for every grant
-- spare    with a counter: how many tokens to reserve behind the owner's token
--
-- reply    1                   acquired, without a counter
--          {1, token, spare}   acquired; so many tokens behind the token are reserved
--          {0, pttl, owner}    refused; the rest of the holder's lease, -1 without an end
--          {-1, key, type}     the key is no lock
local function try(key, counter, lease, owner, spare)
    local ttl = redis.call('pttl', key)
    if ttl == -2 then -- which says that the key does not exist
        return grant(key, counter, lease, owner, spare)
    end
    local what, holder, held = kind(key)
    if what ~= 'lock' then
        return {-1, key, what}
    elseif holder == owner then
        return again(key, counter, lease, ttl, spare)
    end
    recall(key, holder, held)
    return {0, ttl, holder}
end
